package txos;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.RandomAccessFile;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.List;

/**
 * {@code libtxos.so}: where it is, and its functions.
 *
 * <p>Looked for in this order; the first that there is is taken:
 *
 * <ol>
 *   <li>one that the process has loaded already: two in one process would not know of each other
 *   <li>the file that the system property {@code txos.library} names, or else the environment variable
 *       {@code TXOS_LIB}
 *   <li>the copy in the jar, which is put into a new directory that only this user can enter, loaded, and
 *       removed again
 *   <li>{@code /usr/local/lib/txos}, {@code /usr/lib/txos}
 * </ol>
 */
final class Native {
    static final int DURABLE = 0x02;
    static final int STRICT = 0x04;
    static final int NONBLOCK = 0x10;
    static final int ORDERED = 0x20;
    static final int ORDER_RESET = 0x40;
    static final int AFTER = 0x400;
    /** A transaction that is not committed keeps its name, and what it comes after, for the next attempt. */
    static final int RETRY = 0x1000;
    static final int MANAGED = 0x100;

    private static final String LIBRARY = "libtxos.so";
    private static final String SHIM = "libtxosjni.so";

    /** Null once all is loaded; else why nothing can be begun. */
    private static volatile String failure;
    private static volatile Throwable failureCause;
    private static volatile boolean loaded;
    private static final Object LOADING = new Object();

    /** {@code Thread.isVirtual()} of the current thread, or null before Java 21. */
    private static final MethodHandle IS_VIRTUAL = isVirtual();

    private Native() {}

    static native byte[] open(byte[] path);

    static native int begin(int flags, long sequence, byte[] after);

    static native int name(byte[] name);

    static native int end();

    static native void abort();

    static native long pause();

    static native int resume(long id);

    static native boolean inTransaction();

    static native byte[] words();

    static native byte[] version();

    static native byte[] reason(int[] numbers, int text);

    static native int stats(long[] out);

    static native long exclude(byte[] path, byte[] suffix);

    static native int share();

    static native int join(int shown);

    static native void hide(int shown);

    static native long newFlag();

    static native void setFlag(long flag);

    static native void freeFlag(long flag);

    static native int abortIf(long flag);

    private static MethodHandle isVirtual() {
        try {
            return MethodHandles.publicLookup()
                    .findVirtual(Thread.class, "isVirtual", MethodType.methodType(boolean.class));
        } catch (ReflectiveOperationException e) {
            return null;
        }
    }

    static boolean inVirtualThread() {
        if (IS_VIRTUAL == null) {
            return false;
        }
        try {
            return (boolean) IS_VIRTUAL.invokeExact(Thread.currentThread());
        } catch (Throwable e) {
            return false;
        }
    }

    static boolean isLoaded() {
        return loaded;
    }

    /** Loads the library when it is first needed. */
    static void load() {
        if (loaded) {
            return;
        }
        synchronized (LOADING) {
            if (loaded) {
                return;
            }
            if (failure == null) {
                try {
                    failure = loadLibraries();
                } catch (IllegalCallerException | SecurityException e) {
                    failureCause = e;
                    failure = "this Java virtual machine does not permit this code to load native libraries: "
                            + e.getMessage()
                            + ". Start java with --enable-native-access=ALL-UNNAMED (or =txos, from the module"
                            + " path), or have the security manager grant loadLibrary";
                } catch (IOException | RuntimeException | LinkageError e) {
                    failureCause = e;
                    failure = "the native library can't be loaded: " + e.getMessage()
                            + ". The system property txos.library may name an installed " + LIBRARY
                            + ", and java.io.tmpdir a directory from which code may be run";
                }
            }
            if (failure != null) {
                throw new TransactionsUnavailableException(failure, failureCause);
            }
            leaveOutRuntime();
            warmUp();
            loaded = true;
        }
    }

    /** Loads the shim, and has it load the library; gives why not, or null. */
    private static String loadLibraries() throws IOException {
        if (!System.getProperty("os.name").equals("Linux") || !System.getProperty("os.arch").equals("amd64")) {
            return "transactions are available on Linux on x86-64 only";
        }
        // Only this user can enter it.
        Path dir = Files.createTempDirectory(
                "txos-java-", PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
        try {
            Path shim = extract(SHIM, dir);
            if (shim == null) {
                return SHIM + " is not in the jar: it was not built by bindings/java/build";
            }
            System.load(shim.toString());
            List<String> tried = new ArrayList<>();
            for (String path : candidates(dir)) {
                byte[] error = open(bytes(path));
                if (error == null) {
                    return null;
                }
                tried.add(path + ": " + string(error));
            }
            return LIBRARY + " was not found, or can't be used; the system property txos.library may name one."
                    + " Tried: " + (tried.isEmpty() ? "nothing" : String.join("; ", tried));
        } finally {
            // What is loaded stays loaded.
            Files.deleteIfExists(dir.resolve(SHIM));
            Files.deleteIfExists(dir.resolve(LIBRARY));
            Files.deleteIfExists(dir);
        }
    }

    private static List<String> candidates(Path dir) throws IOException {
        String named = System.getProperty("txos.library", "");
        if (named.isEmpty()) {
            named = System.getenv().getOrDefault("TXOS_LIB", "");
        }
        // A program that names one wants that one, or an error.
        if (!named.isEmpty()) {
            return List.of(named);
        }
        List<String> places = new ArrayList<>();
        Path inJar = extract(LIBRARY, dir);
        if (inJar != null) {
            places.add(inJar.toString());
        }
        places.add("/usr/local/lib/txos/" + LIBRARY);
        places.add("/usr/lib/txos/" + LIBRARY);
        return places;
    }

    private static Path extract(String name, Path dir) throws IOException {
        try (InputStream in = Native.class.getResourceAsStream("native/linux-x86_64/" + name)) {
            if (in == null) {
                return null;
            }
            Path place = dir.resolve(name);
            Files.copy(in, place, StandardCopyOption.REPLACE_EXISTING);
            return place;
        }
    }

    /** What the virtual machine itself reads is no part of any transaction. */
    private static void leaveOutRuntime() {
        exclude(System.getProperty("java.home"), "");
        exclude("/dev/random", "");
        exclude("/dev/urandom", "");
        for (String property : new String[] {"java.class.path", "jdk.module.path"}) {
            for (String entry : System.getProperty(property, "").split(File.pathSeparator)) {
                if (entry.isEmpty()) {
                    continue;
                }
                File file = new File(entry).getAbsoluteFile();
                if (!file.isDirectory()) {
                    exclude(file.getPath(), "");
                    continue;
                }
                exclude(file.getPath(), ".class");
                exclude(file.getPath(), ".jar");
            }
        }
    }

    private static void exclude(String path, String suffix) {
        if (path != null) {
            // What is not there is not read either.
            exclude(bytes(path), bytes(suffix));
        }
    }

    /** Leaves files out that are only read; gives how many, or the errno as a negative number. */
    static long leaveOut(Path path, String suffix) {
        return exclude(bytes(path.toAbsolutePath().toString()), bytes(suffix));
    }

    /** What the class library opens once and for all is opened now: an abort would close it. */
    private static void warmUp() {
        try {
            new SecureRandom().nextInt();
            FileChannel.open(Path.of("/dev/null")).close();
            new RandomAccessFile("/dev/null", "r").close();
            Files.exists(Path.of("/"));
        } catch (IOException | RuntimeException e) {
            // Then it is opened when it is needed.
        }
        TransactionException.ofAbort(null);
    }

    static byte[] bytes(String text) {
        // As the virtual machine encodes file names.
        return text.getBytes(ENCODING);
    }

    static String string(byte[] bytes) {
        return new String(bytes, ENCODING);
    }

    private static final java.nio.charset.Charset ENCODING = encoding();

    private static java.nio.charset.Charset encoding() {
        try {
            return java.nio.charset.Charset.forName(System.getProperty("sun.jnu.encoding", "UTF-8"));
        } catch (IllegalArgumentException | SecurityException e) {
            return StandardCharsets.UTF_8;
        }
    }
}
