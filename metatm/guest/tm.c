/*
 * The instructions of transactional memory, without a kernel. Prints a line for each property that does not hold, and then how many
 * held.
 */
typedef unsigned long u64;

static u64 sbi(u64 extension, u64 function, u64 x, u64 y, u64 z)
{
    register u64 a0 asm("a0") = x, a1 asm("a1") = y, a2 asm("a2") = z, a6 asm("a6") = function, a7 asm("a7") = extension;
    asm volatile("ecall" : "+r"(a0), "+r"(a1) : "r"(a2), "r"(a6), "r"(a7) : "memory");
    return a0;
}

static void print(const char *text)
{
    while (*text)
        sbi(1, 0, *text++, 0, 0);
}

static inline u64 xbegin(void)
{
    u64 status;
    asm volatile(".insn r 0x0b, 0, 0, %0, x0, x0" : "=r"(status) : : "memory");
    return status;
}
#define XEND() asm volatile(".insn r 0x0b, 0, 1, x0, x0, x0" : : : "memory")
#define XPUSH() asm volatile(".insn r 0x0b, 0, 2, x0, x0, x0" : : : "memory")
#define XPOP() asm volatile(".insn r 0x0b, 0, 3, x0, x0, x0" : : : "memory")
#define XRESTART(n) asm volatile(".insn r 0x0b, 0, 4, x0, %0, x0" : : "r"(n) : "memory")
static inline u64 xid(void)
{
    u64 id;
    asm volatile(".insn r 0x0b, 0, 5, %0, x0, x0" : "=r"(id) : : "memory");
    return id;
}
static inline u64 xtest(volatile unsigned *word, unsigned value)
{
    u64 is;
    asm volatile(".insn r 0x0b, 0, 7, %0, %1, %2" : "=r"(is) : "r"(word), "r"(value) : "memory");
    return is;
}

static unsigned held __attribute__((aligned(64)));
static void check(int holds, const char *what)
{
    if (holds)
        held++;
    else {
        print("WRONG: ");
        print(what);
        print("\n");
    }
}

/* Each in a line of its own: conflicts may be detected by lines. */
#define LINE __attribute__((aligned(64)))
static volatile u64 a LINE, b LINE;
static volatile unsigned lock LINE;
static volatile u64 ready LINE, done LINE;
#define TIMES 5000

static void adds(void)
{
    for (int i = 0; i < TIMES; i++) {
        xbegin();
        u64 x = a;
        a = x + 1;
        b = b - 1;
        XEND();
    }
}

asm(".globl second\nsecond:\n .option push\n .option norelax\n la gp, __global_pointer$\n .option pop\n mv sp, a1\n"
    " call other\n1: wfi\n j 1b\n");
extern void second(void);
static char stack[16384] __attribute__((aligned(16)));

void other(void)
{
    ready = 1;
    adds();
    done = 1;
    /* Writes outside of transactions, while the first hart has the word in its read set. */
    while (ready != 2)
        ;
    a = 77;
    done = 2;
}

static void alone(void)
{
    a = 1;
    u64 status = xbegin();
    if (status == 0) {
        a = 2;
        XRESTART(9);
    }
    check((status & 255) == 9 && (status >> 8 & 0xffffff) == 1, "xrestart gives its reason and the number of restarts");
    check(status >> 32 >= 2 && status >> 32 < 50, "it says how many instructions were executed in vain");
    check(a == 1, "a restart takes back what was written");
    a = 3;
    XEND();
    check(a == 3, "a commit keeps what was written");

    status = xbegin();
    if (status == 0)
        *(volatile char *)0x10000007 = 1; /* the console's scratch register */
    check((status & 255) == 2, "a device in a transaction asks for the lock");
    XEND();
    status = xbegin();
    if (status == 0)
        sbi(0x10, 0, 0, 0, 0);
    check((status & 255) == 2, "firmware in a transaction asks for the lock");
    XEND();

    status = xbegin();
    if (status == 0)
        asm volatile("csrw sscratch, x0");
    check((status & 255) == 2, "a control register in a transaction asks for the lock");
    XEND();
    status = xbegin();
    if (status == 0)
        asm volatile("sfence.vma" : : : "memory");
    check((status & 255) == 2, "a fence of translations in a transaction asks for the lock");
    XEND();
    status = xbegin();
    asm volatile("csrrsi x0, sstatus, 0\n csrci sstatus, 2");
    check(status == 0 && xid() != 0, "interrupts can be disabled in a transaction");
    XEND();

    status = xbegin();
    xbegin();
    check(xid() != 0, "there is a transaction");
    XEND();
    a = status == 0 ? 5 : 6;
    if (status == 0)
        XRESTART(7);
    check(a == 6, "an inner end commits nothing");
    XEND();
    check(xid() == 0, "there is none after the end");

    b = 0;
    status = xbegin();
    if (status == 0) {
        a = 10;
        XPUSH();
        check(xid() == 0, "a push suspends it");
        xbegin();
        b = 20;
        XEND();
        XPOP();
        check(xid() != 0, "a pop takes it up");
        XRESTART(8);
    }
    check(a == 6 && b == 20, "what an independent transaction has committed stays");
    XEND();

    status = xbegin();
    if (status == 0) {
        a = 11;
        XPUSH();
        a = 12; /* outside: the suspended one loses, and its 11 with it */
        XPOP();
        check(0, "a suspended transaction that lost went on");
    }
    check((status & 255) == 1 && a == 12, "a suspended transaction loses and restarts at the pop");
    XEND();

    lock = 1;
    xbegin();
    check(!xtest(&lock, 0), "xtest says no");
    XEND();
    check(xtest(&lock, 1), "xtest says yes");
}

int main(void)
{
    alone();
    a = b = 0;
    check(sbi(0x48534d, 0, 1, (u64)second, (u64)(stack + sizeof stack)) == 0, "the second hart starts");
    while (!ready)
        ;
    adds();
    while (done != 1)
        ;
    check(a == 2 * TIMES && b == -2UL * TIMES, "no increment of two harts is lost");

    static volatile u64 tries LINE;
    u64 status = xbegin();
    u64 seen = a;
    if (status == 0) {
        XPUSH();
        tries++;
        ready = 2;
        while (done != 2)
            ;
        XPOP();
        check(0, "a transaction survived a write from outside");
    }
    check((status & 255) == 1 && seen == 77, "a write outside of transactions restarts the reader");
    XEND();
    check(tries == 1, "what was done outside stays");
    print("held ");
    char digits[3] = {'0' + held / 10, '0' + held % 10, '\n'};
    for (int i = 0; i < 3; i++)
        sbi(1, 0, digits[i], 0, 0);
    return 0;
}
