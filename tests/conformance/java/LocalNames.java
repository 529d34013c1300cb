import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.common.security.kerberos.KerberosName;
import org.apache.kafka.common.security.kerberos.KerberosShortNamer;

/**
 * Applies sasl.kerberos.principal.to.local.rules as Kafka does. Each line of the input has the default realm, a
 * principal and the rules, separated by tabs; a line of the output is "= " and the user, "none", or "invalid" if the
 * rules are refused.
 */
public class LocalNames {
    public static void main(String[] arguments) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var output = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            List<String> fields = Arrays.asList(line.split("\t", -1));
            output.println(answer(fields.get(0), fields.get(1), fields.subList(2, fields.size())));
        }
    }

    private static String answer(String realm, String principal, List<String> rules) {
        KerberosShortNamer names;
        try {
            names = KerberosShortNamer.fromUnparsedRules(realm, rules);
        } catch (RuntimeException error) {
            return "invalid";
        }
        try {
            return "= " + names.shortName(KerberosName.parse(principal));
        } catch (Exception error) {
            return "none";
        }
    }
}
