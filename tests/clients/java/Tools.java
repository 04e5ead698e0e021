import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Starts Kafka's command-line tools one after the other in one process, since most of a tool's time is the start of its
 * JVM. A request is a line of fields separated by U+0001: what the tool reads on standard input (U+0002 for a line end), the
 * class, its arguments. The answer is what the tool printed, with its errors when it failed, then a line of U+0001 and its
 * exit status.
 */
final class Tools {
    private Tools() {}

    /** A tool's own exit, caught instead of ending this process. Some tools catch it too and exit again: the first counts. */
    private static final class Ended extends RuntimeException {
        private static final long serialVersionUID = 1;
    }

    private static Integer exited;

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Exit.setExitProcedure((status, message) -> {
            exited = exited == null ? status : exited;
            throw new Ended();
        });
        for (String request = requests.readLine(); request != null; request = requests.readLine()) {
            String[] fields = request.split("\u0001", -1);
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            ByteArrayOutputStream errors = new ByteArrayOutputStream();
            System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
            System.setIn(new ByteArrayInputStream(fields[0].replace('\u0002', '\n').getBytes(StandardCharsets.UTF_8)));
            int status = call(fields[1], Arrays.copyOfRange(fields, 2, fields.length));
            System.out.flush();
            answers.write(printed.toByteArray());
            if (status != 0) {
                answers.write(errors.toByteArray());
            }
            answers.println("\n\u0001" + status);
            answers.flush();
        }
        // Some tools leave threads behind.
        Runtime.getRuntime().halt(0);
    }

    private static int call(String tool, String[] arguments) throws ReflectiveOperationException {
        exited = null;
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException thrown) {
            if (thrown.getCause() instanceof Ended) {
                return exited;
            }
            thrown.getCause().printStackTrace();
            return 1;
        }
    }
}
