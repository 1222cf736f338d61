import txos.Options;
import txos.SysTransaction;

/** Nanoseconds of an empty transaction: the fastest of some rounds. */
public class Empty {
    public static void main(String[] args) {
        int rounds = Integer.parseInt(args[0]);
        int count = Integer.parseInt(args[1]);
        Options options = Options.DEFAULT.durable(false);
        long best = Long.MAX_VALUE;
        for (int round = 0; round < rounds; round++) {
            long start = System.nanoTime();
            for (int i = 0; i < count; i++) {
                SysTransaction.begin(options);
                SysTransaction.end();
            }
            best = Math.min(best, (System.nanoTime() - start) / count);
        }
        System.out.println(best);
    }
}
