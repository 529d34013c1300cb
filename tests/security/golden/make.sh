#!/usr/bin/env bash
# Generates the stores in this directory with the keytool of Java 17. The tests need no Java: they read its files.
set -euo pipefail
cd "$(dirname "$0")"
export LC_ALL=C.UTF-8 STORE=store-secret KEY=key-secret ACCENTS=pässwört
dates="-startdate 2020/01/01 -validity 36500"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

tool() { keytool "$@" 2>>"$work/messages" || { cat "$work/messages" >&2; exit 1; }; }
store() { printf '%s' "-keystore $work/$1 -storetype $2"; }
key() { tool -genkeypair -keyalg EC -groupname secp256r1 $dates "$@"; }

# An authority, and a client whose certificate it signed.
key $(store ca.p12 PKCS12) -storepass:env STORE -alias authority -dname CN=authority -ext bc:c
tool -exportcert -rfc $(store ca.p12 PKCS12) -storepass:env STORE -alias authority >authority.pem
key $(store client.jks JKS) -storepass:env STORE -keypass:env KEY -alias client -dname CN=client
tool -certreq $(store client.jks JKS) -storepass:env STORE -keypass:env KEY -alias client |
  tool -gencert -rfc $(store ca.p12 PKCS12) -storepass:env STORE -alias authority $dates >client.pem
cat client.pem authority.pem |
  tool -importcert -noprompt $(store client.jks JKS) -storepass:env STORE -keypass:env KEY -alias client
from_client="-srckeystore $work/client.jks -srcstorepass:env STORE -srckeypass:env KEY -srcalias client"

for kind in JKS PKCS12; do
  tool -importcert -noprompt $(store trusted.${kind,,} $kind) -storepass:env STORE -alias authority -file authority.pem
done
tool -importkeystore $from_client -destkeystore "$work/client.pkcs12" -deststoretype PKCS12 -deststorepass:env STORE \
  -destkeypass:env STORE
# PKCS12 as written up to Java 16: RC2 and triple DES.
tool -J-Dkeystore.pkcs12.legacy -importkeystore $from_client -destkeystore "$work/legacy.pkcs12" -deststoretype PKCS12 \
  -deststorepass:env STORE -destkeypass:env STORE
# A key, and a trusted certificate that is not in its chain. Only JKS can have passwords that are not ASCII.
key $(store other.p12 PKCS12) -storepass:env STORE -alias other -dname CN=other
tool -exportcert -rfc $(store other.p12 PKCS12) -storepass:env STORE -alias other >other.pem
mixed() {
  tool -importkeystore $from_client -destkeystore "$work/$1" -deststoretype "$2" -deststorepass:env "$3" \
    -destkeypass:env "$3"
  tool -importcert -noprompt $(store "$1" "$2") -storepass:env "$3" -alias other -file other.pem
}
mixed mixed.jks JKS ACCENTS
mixed mixed.pkcs12 PKCS12 STORE
key $(store two.jks JKS) -storepass:env STORE -keypass:env STORE -alias first -dname CN=first
key $(store two.jks JKS) -storepass:env STORE -keypass:env STORE -alias second -dname CN=second
tool -importcert -noprompt $(store trusted.jceks JCEKS) -storepass:env STORE -alias authority -file authority.pem

# The client's key, extracted by a program that is neither Java nor Rookery.
openssl pkcs12 -in "$work/client.pkcs12" -passin env:STORE -nocerts -nodes | openssl pkcs8 -topk8 -nocrypt >client.key.pem
openssl pkcs8 -topk8 -in client.key.pem -passout env:KEY >client.encrypted.pem
openssl ec -in client.key.pem -out client.traditional.pem
openssl ec -in client.key.pem -aes128 -passout env:KEY -out client.old-encryption.pem
sed -i 's/\r$//' ./*.pem
chmod 644 ./*.pem
for file in trusted.{jks,pkcs12,jceks} client.{jks,pkcs12} legacy.pkcs12 mixed.{jks,pkcs12} two.jks; do
  base64 "$work/$file" >"$file.base64"
done
