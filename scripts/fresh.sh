#!/usr/bin/env bash
# Runs README's commands on an empty Debian: a root directory by debootstrap with python3, make, git, ca-certificates.
# Usage, as root: make fresh, or scripts/fresh.sh, with these variables:
#   SUITE=bookworm        Debian's release: bookworm has Python 3.11, trixie 3.13, forky 3.14
#   STEPS="demo test"     the targets of make to run, in this order
#   USERS="root user"     root, with the clone below its home of mode 0700, and an ordinary user, who cannot install
#                         packages: python3-venv and Java are installed beforehand, which make does for root
#   MIRROR=               where the packages come from; without it the mirror of this machine
#   KEEP=                 with 1, the directories are left for a look
#   WORKERS, PYTEST_ARGS  as for make test
# Each user gets a new root directory and a clone of HEAD. This machine's settings for pip, apt, maven and proxies and
# its certificates are copied, so that packages come from where they come from here. Everything runs in a mount and
# process namespace of its own: its mounts and processes end with this script, however that ends. Only after a kill -9
# a directory is left.
set -euo pipefail

suite="${SUITE:-bookworm}"
steps="${STEPS:-demo test}"
users="${USERS:-root user}"
top="$(cd "$(dirname "$0")/.." && pwd)"
logs="$top/.cache/fresh"
account=visitor
inner_path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
bundle=/etc/ssl/certs/ca-certificates.crt
# Settings of package managers, proxies and certificates that live in variables.
passed_on='^(PIP_.*|(https?|ftp|all|no)_proxy|(HTTPS?|FTP|ALL|NO)_PROXY|MAVEN_(OPTS|ARGS)'
passed_on+='|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE|GIT_SSL_CAINFO|WORKERS|PYTEST_ARGS)$'
work=""
child=""
log=""
rows=()

fail() {
    echo "fresh: $*" >&2
    exit 1
}

clean_up() {
    local status=$?
    if [ "$status" -ne 0 ] && [ -n "$log" ]; then
        tail -n 20 "$log" >&2
        echo "fresh: stopped with $status; the whole output is in $log" >&2
    fi
    # The namespace's first process dies with this one, and with it all processes and mounts of the namespace.
    [ -z "$child" ] || { kill -KILL "$child" && wait "$child"; } 2> /dev/null || true
    if [ -n "${KEEP:-}" ]; then
        echo "fresh: left in $work" >&2
    else
        rm -rf --one-file-system "$work"
    fi
    exit "$status"
}

# isolated COMMAND...: in namespaces of its own. Waited for in the background, so that a signal ends it at once.
isolated() {
    local status=0
    setpriv --pdeathsig KILL unshare --mount --pid --fork --mount-proc --kill-child -- "$@" &
    child=$!
    wait "$child" || status=$?
    child=""
    return "$status"
}

# inside ROOT USER COMMAND...: in a root directory, with nothing of this machine's environment but what is passed on.
inside() {
    local root="$1" user="$2" home variables=() name
    shift 2
    home="$(awk -F: -v user="$user" '$1 == user { print $6 }' "$root/etc/passwd")"
    while IFS= read -r name; do
        [[ ! "$name" =~ $passed_on ]] || variables+=("$name=${!name}")
    done < <(compgen -e)
    isolated bash -c '
        set -euo pipefail
        root="$1" directories="$2"; shift 2
        mount --rbind /dev "$root/dev"
        mount --rbind /sys "$root/sys"
        mount -t proc proc "$root/proc"
        # Directories that settings name, such as one of wheels.
        for directory in $directories; do
            mkdir -p "$root$directory"
            mount --bind "$directory" "$root$directory"
        done
        # Not exec: this shell is the first process here, and takes in those whose parents died, which make would not.
        status=0
        chroot "$@" || status=$?
        exit "$status"
    ' bash "$root" "$(named_paths -d)" --userspec="$user:$user" "$root" \
        env -i HOME="$home" USER="$user" LOGNAME="$user" PATH="$inner_path" LANG=C.UTF-8 "${variables[@]}" \
        bash -c 'cd && exec "$@"' bash "$@"
}

# named_paths -f|-d: the files or directories outside /etc/ssl that the variables name.
named_paths() {
    local name value
    while IFS= read -r name; do
        value="${!name}"
        if [[ "$name" =~ $passed_on && "$value" = /* && "$value" != /etc/ssl/* ]] && test "$1" "$value"; then
            echo "$value"
        fi
    done < <(compgen -e)
}

# give ROOT PATH...: copies what exists of these to the same places.
give() {
    local root="$1" path
    shift
    for path in "$@"; do
        if [ -e "$path" ]; then
            mkdir -p "$root$(dirname "$path")"
            cp -rL --preserve=mode "$path" "$root$(dirname "$path")/"
        fi
    done
}

# give_home ROOT HOME PATH...: the same from this user's home to another.
give_home() {
    local root="$1" home="$2" path
    shift 2
    for path in "$@"; do
        if [ -e "$HOME/$path" ]; then
            mkdir -p "$root$home/$(dirname "$path")"
            cp -rL --preserve=mode "$HOME/$path" "$root$home/$path"
        fi
    done
}

require_tools() {
    [ "$(id -u)" -eq 0 ] || fail "only root can make a root directory. Run: sudo make fresh"
    local tool
    for tool in setpriv unshare chroot mount git; do
        command -v "$tool" > /dev/null || fail "there is no $tool. Install it, then try again."
    done
    if ! command -v debootstrap > /dev/null; then
        command -v apt-get > /dev/null || fail "there is no debootstrap. Install it, then try again."
        apt-get update -q
        DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends debootstrap
    fi
    local user
    for user in $users; do
        [ "$user" = root ] || [ "$user" = user ] || fail "USERS is made of root and user, not $user"
    done
}

# The mirror that this machine installs its own release from; nothing if there is none, and debootstrap has its own.
find_mirror() {
    local codename
    codename="$(. /etc/os-release && echo "${VERSION_CODENAME:-}")"
    [ -z "${MIRROR:-}" ] || { echo "$MIRROR"; return; }
    [ "$(. /etc/os-release && echo "${ID:-}")" = debian ] || return 0
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' "Created-By: Packages" \
        | awk -v codename="$codename" '$2 == codename && $3 == "main" && !found { print $1; found = 1 }'
}

build_base() {
    local base="$1" mirror script=()
    mirror="$(find_mirror)"
    # A release that is newer than debootstrap is made like the unstable one.
    [ -e "/usr/share/debootstrap/scripts/$suite" ] || script=("$mirror" sid)
    [ "${#script[@]}" -gt 0 ] || [ -z "$mirror" ] || script=("$mirror")
    isolated debootstrap --variant=minbase --include=python3,make,git,ca-certificates "$suite" "$base" "${script[@]}"
    chmod 755 "$base"
    give "$base" /etc/resolv.conf /etc/hosts /etc/hostname /etc/pip.conf /etc/apt/auth.conf /etc/apt/auth.conf.d
    # Proxies, certificates and the like; other settings belong to packages that are not there.
    grep -lsr Acquire /etc/apt/apt.conf /etc/apt/apt.conf.d > "$work/apt" || true
    mapfile -t files < <(cat "$work/apt"; named_paths -f)
    give "$base" "${files[@]}"
    # One by one, since installing Java makes the bundle again from these.
    mkdir -p "$base/usr/local/share/ca-certificates/host"
    [ ! -f "$bundle" ] || awk -v directory="$base/usr/local/share/ca-certificates/host" '
        /-----BEGIN CERTIFICATE-----/ { file = sprintf("%s/%04d.crt", directory, ++count) }
        file { print > file }
        /-----END CERTIFICATE-----/ { close(file); file = "" }
    ' "$bundle"
    inside "$base" root update-ca-certificates > /dev/null
    inside "$base" root useradd --create-home --shell /bin/bash "$account"
}

# prepare ROOT NAME: what a user of this name finds, with the clone.
prepare() {
    local root="$1" name="$2" home
    home="$(awk -F: -v user="$name" '$1 == user { print $6 }' "$root/etc/passwd")"
    chmod 700 "$root$home"
    give_home "$root" "$home" .config/pip .pip .m2/settings.xml
    git -c advice.detachedHead=false clone --quiet --no-local "$top" "$root$home/rookery"
    git -C "$root$home/rookery" -c advice.detachedHead=false checkout --quiet "$commit"
    git -C "$root$home/rookery" remote remove origin
    if [ "$name" != root ]; then
        inside "$root" root chown -R "$name:$name" "$home"
        inside "$root" root apt-get update -q
        inside "$root" root env DEBIAN_FRONTEND=noninteractive \
            apt-get install -q -y --no-install-recommends python3-venv default-jre-headless
    fi
}

# take_step ROOT NAME STEP: runs a target of make and remembers the result; all output is shown, and kept in a file.
take_step() {
    local root="$1" name="$2" step="$3" kept="$logs/$suite-$2-$3.log" result=passed reader
    echo "== $suite, $name: make $step"
    SECONDS=0
    exec 3> >(tee "$kept")
    reader=$!
    inside "$root" "$name" make -C rookery "$step" >&3 2>&1 || result=FAILED
    exec 3>&-
    wait "$reader"
    rows+=("$(printf '  %-9s %-8s %-6s %-7s %4d min  %s' \
        "$suite" "$name" "$step" "$result" "$((SECONDS / 60))" "$(summary "$kept")")")
    [ "$result" = passed ] || outcome=1
}

# What pytest says at its ends.
summary() {
    grep -oE '^(=+ )?[0-9]+ (passed|failed|error).* in [0-9.]+s' "$1" | sed 's/^=* //' | paste -sd ';' || true
}

require_tools
commit="$(git -C "$top" rev-parse HEAD)"
[ -z "$(git -C "$top" status --porcelain)" ] || echo "fresh: what is not committed is not in the clone" >&2
work="$(mktemp -d "${TMPDIR:-/var/tmp}/rookery-fresh.XXXXXX")"
chmod 755 "$work"
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
mkdir -p "$logs"

echo "== $suite: an empty Debian"
log="$logs/$suite.log"
build_base "$work/base" > "$log" 2>&1
python="$(inside "$work/base" root python3 -V)"
log=""

outcome=0
for user in $users; do
    [ "$user" = root ] && name=root || name=$account
    root="$work/$user"
    log="$logs/$suite-$name.log"
    cp -a "$work/base" "$root"
    prepare "$root" "$name" > "$log" 2>&1
    log=""
    for step in $steps; do
        take_step "$root" "$name" "$step"
    done
    [ -n "${KEEP:-}" ] || rm -rf --one-file-system "$root"
done

echo
echo "$python, $(git -C "$top" log -1 --format='%h %s' "$commit")"
printf '%s\n' "${rows[@]}"
exit "$outcome"
