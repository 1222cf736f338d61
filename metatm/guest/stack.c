/*
 * An interrupt on the stack of a transaction, without a kernel. Two things can go wrong there.
 *
 * Live stack: a function begins a transaction and returns, so its frame lies below the stack pointer. An interrupt's handler
 * writes its own frames there. When the transaction starts again, it does so in the frame that is gone. The handler avoids that
 * if it asks with xlivesp where it may begin.
 *
 * Dead stack: a function that the transaction has called and left is in its write set. The handler's frames conflict with it, for
 * nothing, unless what is dead is released when the transaction is suspended.
 *
 * Prints how often each has happened.
 */
typedef unsigned long u64;
#define ROUNDS 20

static void sbi(u64 extension, u64 x)
{
    register u64 a0 asm("a0") = x, a1 asm("a1") = 0, a6 asm("a6") = 0, a7 asm("a7") = extension;
    asm volatile("ecall" : "+r"(a0), "+r"(a1) : "r"(a6), "r"(a7) : "memory");
}

static void print(const char *text)
{
    while (*text)
        sbi(1, *text++);
}

static void number(u64 n)
{
    char digits[3] = {'0' + n / 10 % 10, '0' + n % 10, 0};
    print(digits);
}

static inline __attribute__((always_inline)) u64 xbegin(void)
{
    u64 status;
    asm volatile(".insn r 0x0b, 0, 0, %0, x0, x0" : "=r"(status) : : "memory");
    return status;
}
#define XEND() asm volatile(".insn r 0x0b, 0, 1, x0, x0, x0" : : : "memory")

static inline u64 now(void)
{
    u64 ticks;
    asm volatile("rdtime %0" : "=r"(ticks));
    return ticks;
}

/* Entry and return as TxLinux has them: the pair of xpush and xpop does no harm where the trap itself suspends a transaction. */
asm(".balign 4\n"
    "entry:\n"
    " .insn r 0x0b, 0, 2, x0, x0, x0\n" /* xpush */
    " csrw sscratch, sp\n"
    " .insn r 0x0b, 0, 6, sp, sp, x0\n" /* xlivesp */
    " addi sp, sp, -128\n"
    " sd ra, 0(sp)\n sd t0, 8(sp)\n sd t1, 16(sp)\n sd t2, 24(sp)\n sd a0, 32(sp)\n sd a1, 40(sp)\n sd a2, 48(sp)\n"
    " sd a3, 56(sp)\n sd a4, 64(sp)\n sd a5, 72(sp)\n sd a6, 80(sp)\n sd a7, 88(sp)\n sd t3, 96(sp)\n sd t4, 104(sp)\n"
    " sd t5, 112(sp)\n sd t6, 120(sp)\n"
    " call handler\n"
    " ld ra, 0(sp)\n ld t0, 8(sp)\n ld t1, 16(sp)\n ld t2, 24(sp)\n ld a0, 32(sp)\n ld a1, 40(sp)\n ld a2, 48(sp)\n"
    " ld a3, 56(sp)\n ld a4, 64(sp)\n ld a5, 72(sp)\n ld a6, 80(sp)\n ld a7, 88(sp)\n ld t3, 96(sp)\n ld t4, 104(sp)\n"
    " ld t5, 112(sp)\n ld t6, 120(sp)\n"
    " csrr sp, sscratch\n"
    " .insn r 0x0b, 0, 3, x0, x0, x0\n" /* xpop */
    " sret\n");
extern void entry(void);

static volatile u64 written __attribute__((aligned(64)));
static volatile u64 interrupts __attribute__((aligned(64)));

void handler(void)
{
    volatile u64 frame[64];
    for (int i = 0; i < 64; i++)
        frame[i] = ~0UL;
    sbi(0x54494d45, -1UL);
    interrupts++;
    written = frame[0];
}

static u64 timer(void)
{
    u64 at = now() + 300;
    sbi(0x54494d45, at);
    return at + 20;
}

/* Begins a transaction, and returns before it ends. Gives what xbegin gave, and 1 << 63 if its frame was overwritten. */
static __attribute__((noinline)) u64 begin_in_a_frame(void)
{
    volatile u64 frame[16];
    u64 wrong = 0;
    for (int i = 0; i < 16; i++)
        frame[i] = i;
    u64 status = xbegin();
    if (status)
        for (int i = 0; i < 16; i++)
            wrong |= frame[i] != (u64)i;
    return status | wrong << 63;
}

static __attribute__((noinline)) void uses_stack(void)
{
    volatile u64 frame[64];
    for (int i = 0; i < 64; i++)
        frame[i] = i;
    (void)frame[0];
}

int main(void)
{
    u64 overwritten = 0, restarted = 0, spurious = 0;
    asm volatile("csrw stvec, %0" : : "r"(entry));
    asm volatile("csrw sie, %0" : : "r"(1 << 5));
    asm volatile("csrsi sstatus, 2");
    for (int i = 0; i < ROUNDS; i++) {
        u64 until = timer();
        u64 status = begin_in_a_frame();
        if (status == 0) {
            (void)written; /* the handler's write restarts the transaction */
            while (now() < until)
                ;
        }
        XEND();
        restarted += (status & 255) == 1;
        overwritten += status >> 63;
    }
    for (int i = 0; i < ROUNDS; i++) {
        u64 until = timer();
        u64 status = xbegin();
        if (status == 0) {
            uses_stack();
            while (now() < until)
                ;
        }
        XEND();
        spurious += status != 0;
    }
    print("interrupts ");
    number(interrupts);
    print(", restarted ");
    number(restarted);
    print(", live stack overwritten ");
    number(overwritten);
    print(", restarted for dead stack ");
    number(spurious);
    print("\n");
    return 0;
}
