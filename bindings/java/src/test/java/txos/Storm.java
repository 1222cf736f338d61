package txos;

import java.io.FileInputStream;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.zip.CRC32;

/**
 * Many threads that move money between files, while memory is short, classes are loaded and other
 * transactions abort. Writes its history for the checker in crates/txos-testkit/src/history, whose log.rs
 * describes the format.
 *
 * <p>Arguments: directory, directory of histories, number of this process, transactions, threads, accounts,
 * seed.
 */
public final class Storm {
    private static final int START = 1000;
    /** The heap of the test is some 64 MB. */
    private static final byte[][] BALLAST = new byte[512][];

    private final Path dir;
    private final int transactions;
    private final int accounts;
    private final AtomicInteger next = new AtomicInteger();
    private final AtomicInteger committed = new AtomicInteger();
    private final AtomicInteger conflicts = new AtomicInteger();
    private final AtomicInteger aborted = new AtomicInteger();
    private final AtomicInteger classes = new AtomicInteger();
    private final AtomicReference<Throwable> failure = new AtomicReference<>();

    private Storm(Path dir, int transactions, int accounts) {
        this.dir = dir;
        this.transactions = transactions;
        this.accounts = accounts;
    }

    public static void main(String[] args) throws Exception {
        Path dir = Path.of(args[0]);
        Path histories = Path.of(args[1]);
        int process = Integer.parseInt(args[2]);
        int threads = Integer.parseInt(args[4]);
        int accounts = Integer.parseInt(args[5]);
        long seed = Long.parseLong(args[6]);
        Storm storm = new Storm(dir, Integer.parseInt(args[3]), accounts);
        if (process == 0) {
            for (int i = 0; i < accounts; i++) {
                Files.writeString(storm.account(i), START + "\n");
            }
        }
        Transactions.stats();
        List<Thread> running = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            History history = new History(histories, process * 1000 + i + 1);
            SplittableRandom random = new SplittableRandom(seed * 1000 + i);
            Thread thread = new Thread(() -> storm.work(history, random), "storm-" + i);
            thread.start();
            running.add(thread);
        }
        // Other threads load as well, and collect.
        Thread outside = new Thread(storm::outside, "outside");
        outside.setDaemon(true);
        outside.start();
        for (Thread thread : running) {
            thread.join();
        }
        if (storm.failure.get() != null) {
            throw new AssertionError(storm.failure.get());
        }
        // Without a transaction, when all have ended.
        storm.look(new ArrayList<>());
        Arrays.fill(BALLAST, null);
        // Streams that aborted transactions left over close their numbers when they are collected.
        long deadline = System.nanoTime() + 20_000_000_000L;
        while (!storm.left().isEmpty() && System.nanoTime() < deadline) {
            System.gc();
            Thread.onSpinWait();
        }
        check(storm.left().isEmpty(), "descriptors leaked: " + storm.left());
        System.out.println("committed " + storm.committed + " conflicts " + storm.conflicts + " aborted "
                + storm.aborted + " classes " + storm.classes);
    }

    private Path account(int number) {
        return dir.resolve("account-" + number);
    }

    /** Descriptors that transactions have left: dead ones, and those of accounts. */
    private List<String> left() throws IOException {
        List<String> left = new ArrayList<>();
        for (String number : new java.io.File("/proc/self/fd").list()) {
            Path link = Path.of("/proc/self/fd", number);
            // Those from two thirds of the limit on are the library's.
            if (Integer.parseInt(number) >= 10_000) {
                continue;
            }
            try {
                Path target = Files.readSymbolicLink(link);
                if (target.equals(Path.of("/")) || target.startsWith(dir)) {
                    left.add(number + " " + target);
                }
            } catch (java.nio.file.NoSuchFileException e) {
                // Another thread of the virtual machine has closed it meanwhile.
            }
        }
        return left;
    }

    private void outside() {
        try {
            while (true) {
                load(classes.getAndIncrement());
                System.gc();
                Thread.sleep(20);
            }
        } catch (InterruptedException e) {
            failure.compareAndSet(null, e);
        }
    }

    private void load(int number) {
        try {
            Class<?> loaded = Class.forName("storm.C" + number);
            if (!loaded.getField("VALUE").get(null).equals("value " + number)) {
                failure.set(new AssertionError("a class was not as in its file: " + loaded));
            }
        } catch (ClassNotFoundException e) {
            if (number < 200) {
                failure.set(e);
            }
        } catch (ReflectiveOperationException | LinkageError e) {
            failure.set(e);
        }
    }

    private void work(History history, SplittableRandom random) {
        Options options = Options.DEFAULT.durable(false);
        try {
            while (failure.get() == null && next.getAndIncrement() < transactions) {
                while (!attempt(history, random, options)) {
                    Thread.sleep(0, random.nextInt(1, 900_000));
                }
            }
        } catch (Throwable e) {
            failure.compareAndSet(null, e);
        }
    }

    /** One attempt; false: it lost, and is to be made again. */
    private boolean attempt(History history, SplittableRandom random, Options options) throws Exception {
        int from = random.nextInt(accounts);
        int to = (from + random.nextInt(1, accounts)) % accounts;
        int kind = random.nextInt(16);
        boolean looks = kind == 0;
        boolean fails = kind == 1;
        int id = history.invoke(from, to, looks);
        long value = history.value(id);
        List<long[]> found = new ArrayList<>();
        try (SysTransaction tx = SysTransaction.begin(options)) {
            if (looks) {
                look(found);
            } else {
                move(from, to, value, random, kind, found);
                if (fails) {
                    // Left open, for the collector to find.
                    new FileInputStream(account(from).toFile()).read();
                    SysTransaction.abort();
                    history.complete(id, History.ABORTED, List.of(), 0);
                    aborted.incrementAndGet();
                    return true;
                }
            }
            SysTransaction.end();
        } catch (ConflictException e) {
            history.complete(id, History.ABORTED, List.of(), 0);
            conflicts.incrementAndGet();
            return false;
        } catch (IOException e) {
            // It had lost, and a call told so: close() added why.
            check(Arrays.stream(e.getSuppressed()).anyMatch(ConflictException.class::isInstance), e);
            history.complete(id, History.ABORTED, List.of(), 0);
            conflicts.incrementAndGet();
            return false;
        }
        history.complete(id, History.COMMITTED, found, looks ? 0 : value);
        committed.incrementAndGet();
        return true;
    }

    /** Reads every account: the sum is as ever, also in a transaction that loses later. */
    private void look(List<long[]> found) throws IOException {
        long sum = 0;
        for (int i = 0; i < accounts; i++) {
            long[] account = read(i);
            sum += account[0];
            found.add(entry(i, account));
        }
        check(sum == (long) START * accounts, "a sum of " + sum);
    }

    private void move(int from, int to, long value, SplittableRandom random, int kind, List<long[]> found)
            throws IOException {
        long[] giver = read(from);
        long[] taker = read(to);
        found.add(entry(from, giver));
        found.add(entry(to, taker));
        load(classes.getAndIncrement());
        for (int i = 0; i < 4; i++) {
            BALLAST[random.nextInt(BALLAST.length)] = new byte[random.nextInt(1, 128 << 10)];
        }
        long amount = random.nextInt(1, 50);
        write(from, giver[0] - amount, giver, value, kind);
        write(to, taker[0] + amount, taker, value, kind);
    }

    private static long[] entry(int number, long[] account) {
        long[] entry = account.clone();
        entry[0] = number;
        return entry;
    }

    private long[] read(int number) throws IOException {
        String[] words = Files.readString(account(number)).trim().split("\\s+");
        return Arrays.stream(words).mapToLong(Long::parseLong).toArray();
    }

    /** In each of the ways in which Java writes files. */
    private void write(int number, long balance, long[] account, long value, int kind) throws IOException {
        StringBuilder text = new StringBuilder().append(balance).append('\n');
        for (int i = 1; i < account.length; i++) {
            text.append(account[i]).append('\n');
        }
        byte[] bytes = text.append(value).append('\n').toString().getBytes(StandardCharsets.US_ASCII);
        Path path = account(number);
        switch (kind % 4) {
            case 0:
                Files.write(path, bytes);
                break;
            case 1:
                try (RandomAccessFile file = new RandomAccessFile(path.toFile(), "rw")) {
                    file.write(bytes);
                    file.setLength(bytes.length);
                }
                break;
            case 2:
                Path other = path.resolveSibling(path.getFileName() + ".new");
                Files.write(other, bytes);
                Files.move(other, path, StandardCopyOption.ATOMIC_MOVE);
                break;
            default:
                try (FileChannel channel = FileChannel.open(
                        path, StandardOpenOption.WRITE, StandardOpenOption.TRUNCATE_EXISTING)) {
                    channel.write(ByteBuffer.wrap(bytes));
                }
        }
    }

    private static void check(boolean condition, Object what) {
        if (!condition) {
            throw what instanceof Throwable ? new AssertionError((Throwable) what) : new AssertionError(what);
        }
    }

    /** One thread's part of the history. */
    private static final class History {
        static final int INVOKED = 0;
        static final int COMMITTED = 1;
        static final int ABORTED = 2;
        private static final int APPEND = 0;
        private static final int READ_LIST = 1;

        private final FileChannel file;
        private final long process;
        private int count;
        private ByteBuffer record = ByteBuffer.allocate(1 << 20).order(ByteOrder.LITTLE_ENDIAN);
        private int from;
        private int to;
        private boolean looks;

        History(Path dir, int process) throws IOException {
            this.process = process;
            file = FileChannel.open(
                    dir.resolve(process + ".history"), StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
            ByteBuffer header = ByteBuffer.allocate(12).order(ByteOrder.LITTLE_ENDIAN);
            header.put("TXHIST1\n".getBytes(StandardCharsets.US_ASCII)).putInt(process).flip();
            file.write(header);
        }

        long value(int id) {
            return process << 32 | (id + 1);
        }

        int invoke(int from, int to, boolean looks) throws IOException {
            this.from = from;
            this.to = to;
            this.looks = looks;
            int id = count++;
            start(INVOKED, id);
            if (!looks) {
                append(value(id));
            }
            write();
            return id;
        }

        void complete(int id, int outcome, List<long[]> found, long value) throws IOException {
            start(outcome, id);
            for (long[] list : found) {
                record.put((byte) READ_LIST).putLong(list[0]).putInt(list.length - 1);
                for (int i = 1; i < list.length; i++) {
                    record.putLong(list[i]);
                }
            }
            if (outcome == COMMITTED && !looks) {
                append(value);
            }
            write();
        }

        private void append(long value) {
            record.put((byte) APPEND).putLong(from).putLong(value);
            record.put((byte) APPEND).putLong(to).putLong(value);
        }

        private void start(int kind, int id) {
            record.clear().position(12);
            record.put((byte) kind).putInt(id).putLong(System.nanoTime());
        }

        private void write() throws IOException {
            CRC32 sum = new CRC32();
            sum.update(record.array(), 12, record.position() - 12);
            record.putInt(0, record.position() - 12).putLong(4, ~sum.getValue());
            record.flip();
            int length = record.remaining();
            check(file.write(record) == length, "a torn record");
        }
    }
}
