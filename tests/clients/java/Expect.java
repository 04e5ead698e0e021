import java.util.List;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;

/** Reports cases as the lines that tests/clients/run reads, and the first difference where one fails. */
final class Expect {
    private Expect() {}

    interface Case {
        void run() throws Exception;
    }

    static void testCase(String name, Case body) {
        try {
            body.run();
            System.out.println("ok " + name);
        } catch (Exception | AssertionError failure) {
            Throwable cause = failure instanceof ExecutionException && failure.getCause() != null ? failure.getCause() : failure;
            System.out.println("FAIL " + name + ": " + cause.toString().replace('\n', ' '));
        }
    }

    static void equal(String what, Object expected, Object found) {
        if (!Objects.equals(expected, found)) {
            throw new AssertionError(what + ": expected " + expected + ", found " + found);
        }
    }

    /**
     * Metadata follows a change that was acknowledged with a delay that nothing bounds; we give it 20 s. Until then there
     * may also be no answer, which counts as a different one.
     */
    static void eventually(String what, Object expected, Callable<?> ask) throws Exception {
        long deadline = System.nanoTime() + 20_000_000_000L;
        Object found = answer(ask);
        while (!expected.equals(found) && System.nanoTime() < deadline) {
            Thread.sleep(50);
            found = answer(ask);
        }
        equal(what, expected, found);
    }

    private static Object answer(Callable<?> ask) {
        try {
            return ask.call();
        } catch (Exception failure) {
            return failure;
        }
    }

    static void equal(String what, List<String> expected, List<String> found) {
        for (int at = 0; at < Math.max(expected.size(), found.size()); at++) {
            String left = at < expected.size() ? expected.get(at) : "nothing more";
            String right = at < found.size() ? found.get(at) : "nothing more";
            equal(what + " record " + at, (Object) left, (Object) right);
        }
    }

    static <T extends Throwable> void fails(Class<T> kind, Case body) throws Exception {
        try {
            body.run();
        } catch (ExecutionException failure) {
            if (kind.isInstance(failure.getCause())) {
                return;
            }
            throw failure;
        }
        throw new AssertionError("expected " + kind.getSimpleName() + ", found success");
    }
}
