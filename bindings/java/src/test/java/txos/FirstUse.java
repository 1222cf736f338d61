package txos;

import java.io.File;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.ByteBuffer;
import java.nio.channels.AsynchronousCloseException;
import java.nio.channels.AsynchronousFileChannel;
import java.nio.channels.FileChannel;
import java.nio.channels.Pipe;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.file.FileSystem;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardWatchEventKinds;
import java.nio.file.WatchService;
import java.security.SecureRandom;
import java.time.ZoneId;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TimeZone;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.logging.Logger;

/**
 * What the class library opens when it is first used, and keeps: first used in a transaction that does not
 * commit, then outside.
 *
 * <p>Arguments: a directory, {@code aborted} or {@code lost}, a jar of classes {@code storm.C0}, {@code storm.C1} …, and
 * names of uses; none for all. With {@code lost} the transaction has lost a conflict before the first use, so
 * that all calls of the use fail.
 */
public final class FirstUse {
    private interface Use {
        void run() throws Exception;
    }

    private final Path dir;
    private final Path jar;
    private final Map<String, Use> uses = new TreeMap<>();

    private FirstUse(Path dir, Path jar) {
        this.dir = dir;
        this.jar = jar;
        uses.put("asynchronous", this::asynchronous);
        uses.put("channel", this::channel);
        uses.put("console", System::console);
        uses.put("kept", this::kept);
        uses.put("loader", this::loader);
        uses.put("logging", () -> Logger.getLogger("first").fine("use"));
        uses.put("compiler", FirstUse::compiler);
        uses.put("network", this::network);
        uses.put("process", FirstUse::process);
        uses.put("random", FirstUse::random);
        uses.put("selector", FirstUse::selector);
        uses.put("time", () -> ZoneId.of("Asia/Tokyo").getRules().isFixedOffset());
        uses.put("watch", this::watch);
        uses.put("zip", this::zip);
    }

    public static void main(String[] args) throws Exception {
        FirstUse first = new FirstUse(Path.of(args[0]), Path.of(args[2]));
        boolean lost = args[1].equals("lost");
        List<String> wanted = Arrays.asList(args).subList(3, args.length);
        Files.writeString(first.dir.resolve("file"), "text");
        int used = 0;
        for (Map.Entry<String, Use> use : first.uses.entrySet()) {
            if (wanted.isEmpty() || wanted.contains(use.getKey())) {
                first.inOneThatFails(use.getValue(), lost);
                use.getValue().run();
                used++;
            }
        }
        System.out.println("used " + used);
        System.exit(0);
    }

    /** Uses it in a transaction that does not commit. */
    private void inOneThatFails(Use use, boolean lost) throws Exception {
        try (SysTransaction tx = SysTransaction.begin(Options.DEFAULT.durable(false))) {
            if (lost) {
                lose();
            }
            use.run();
        } catch (Exception e) {
            if (!lost) {
                throw e;
            }
        }
    }

    /** Another process could do that as well. */
    private void lose() throws IOException {
        Path file = dir.resolve("file");
        Path other = dir.resolve("other");
        Files.readString(file);
        SysTransaction.Paused paused = SysTransaction.pause();
        Files.writeString(other, "text");
        Files.move(other, file, StandardCopyOption.REPLACE_EXISTING);
        SysTransaction.resume(paused);
        try {
            Files.readString(file);
        } catch (IOException e) {
            return;
        }
        throw new AssertionError("it has not lost");
    }

    private void asynchronous() throws Exception {
        try (AsynchronousFileChannel channel = AsynchronousFileChannel.open(dir.resolve("file"))) {
            channel.read(ByteBuffer.allocate(4), 0).get(10, TimeUnit.SECONDS);
        }
    }

    /** Reads, and has a thread that waits in a read interrupted by a close, which takes a signal. */
    private void channel() throws Exception {
        try (FileChannel channel = FileChannel.open(dir.resolve("file"))) {
            channel.read(ByteBuffer.allocate(4));
            channel.map(FileChannel.MapMode.READ_ONLY, 0, 4).get();
        }
        Pipe pipe = Pipe.open();
        AtomicReference<Throwable> how = new AtomicReference<>();
        Thread reader = new Thread(() -> {
            try {
                pipe.source().read(ByteBuffer.allocate(1));
            } catch (IOException e) {
                how.set(e);
            }
        });
        reader.start();
        while (reader.getState() == Thread.State.NEW || !inRead(reader)) {
            Thread.onSpinWait();
        }
        pipe.source().close();
        reader.join(10_000);
        pipe.sink().close();
        check(how.get() instanceof AsynchronousCloseException, how.get());
    }

    private static boolean inRead(Thread thread) {
        StackTraceElement[] frames = thread.getStackTrace();
        return frames.length > 0 && frames[0].getMethodName().equals("read0");
    }

    private void loader() throws Exception {
        URLClassLoader loader = new URLClassLoader(new URL[] {jar.toUri().toURL()});
        loader.loadClass("storm.C0");
        loader.close();
    }

    private void network() throws Exception {
        try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
                Socket client = new Socket(server.getInetAddress(), server.getLocalPort());
                Socket accepted = server.accept()) {
            client.getOutputStream().write('x');
            check(accepted.getInputStream().read() == 'x', "another byte");
        }
    }

    private static void process() throws Exception {
        Process process = new ProcessBuilder("cat").start();
        process.getOutputStream().write("text".getBytes());
        process.getOutputStream().close();
        check(new String(process.getInputStream().readAllBytes()).equals("text"), "another text");
        check(process.waitFor(10, TimeUnit.SECONDS) && process.exitValue() == 0, "an exit status");
        check(process.onExit().get(10, TimeUnit.SECONDS) == process, "another process");
    }

    private static void compiler() {
        check(javax.tools.ToolProvider.getSystemJavaCompiler().getSourceVersions().size() > 1, "no versions");
    }

    private static void random() throws Exception {
        SecureRandom random = new SecureRandom();
        random.setSeed(7);
        random.nextInt();
        SecureRandom.getInstanceStrong().nextInt();
        SecureRandom.getInstance("NativePRNGNonBlocking").generateSeed(4);
        UUID.randomUUID();
        Math.random();
        File.createTempFile("first", "use").delete();
    }

    private static void selector() throws Exception {
        try (Selector selector = Selector.open()) {
            Pipe pipe = Pipe.open();
            pipe.source().configureBlocking(false);
            pipe.source().register(selector, SelectionKey.OP_READ);
            pipe.sink().write(ByteBuffer.wrap(new byte[1]));
            check(selector.select(10_000) == 1, "nothing to read");
            pipe.sink().close();
            pipe.source().close();
        }
    }

    private Selector selector;
    private Pipe pipe;

    /** A selector and a pipe of a transaction that was aborted can be used on. */
    private void kept() throws IOException {
        pipe = pipe == null ? Pipe.open() : pipe;
        selector = selector == null ? Selector.open() : selector;
        pipe.source().configureBlocking(false);
        pipe.source().register(selector, SelectionKey.OP_READ);
        pipe.sink().write(ByteBuffer.wrap(new byte[1]));
        check(selector.select(10_000) == 1, "nothing to read");
        selector.selectedKeys().clear();
        check(pipe.source().read(ByteBuffer.allocate(2)) == 1, "another length");
    }

    private void watch() throws Exception {
        try (WatchService service = FileSystems.getDefault().newWatchService()) {
            dir.register(service, StandardWatchEventKinds.ENTRY_CREATE);
            if (SysTransaction.isActive()) {
                return;
            }
            Files.delete(Files.createTempFile(dir, "watched", ""));
            check(service.poll(10, TimeUnit.SECONDS) != null, "no event");
        }
    }

    private void zip() throws Exception {
        try (FileSystem system = FileSystems.newFileSystem(jar, (ClassLoader) null)) {
            check(Files.size(system.getPath("storm/C0.class")) > 0, "an empty class");
        }
        TimeZone.getDefault();
    }

    private static void check(boolean condition, Object what) {
        if (!condition) {
            throw new AssertionError(what);
        }
    }
}
