package txos;

import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Stream;
import org.junit.jupiter.api.Assertions;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/** Each check of {@link Checks} as a test of JUnit's. */
class ChecksTest {
    @TestFactory
    Stream<DynamicTest> checks() {
        Path top = Path.of(System.getProperty("txos.test.dir"));
        return Checks.all().stream().map(method -> DynamicTest.dynamicTest(method.getName(), () -> run(method, top)));
    }

    private static void run(Method method, Path top) throws Throwable {
        try {
            method.invoke(new Checks(Files.createTempDirectory(top, method.getName())));
        } catch (java.lang.reflect.InvocationTargetException e) {
            throw e.getCause();
        }
        Assertions.assertFalse(SysTransaction.isActive(), "it left a transaction");
    }
}
