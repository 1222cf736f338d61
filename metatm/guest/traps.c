/*
 * What a program must not do, without a kernel: each is to end in the exception that the manual names, and not in the end of the machine.
 * Prints the causes in order.
 */
typedef unsigned long u64;

static void put(char c)
{
    register u64 a0 asm("a0") = (unsigned char)c, a7 asm("a7") = 1;
    asm volatile("ecall" : "+r"(a0) : "r"(a7) : "memory");
}

static u64 cause, value;

/* Remembers the cause, and goes on after the instruction; after a jump to nowhere, where it came from. */
asm(".option push\n.option norvc\n.balign 4\n"
    "entry:\n"
    " la t1, cause\n csrr t0, scause\n sd t0, 0(t1)\n"
    " la t1, value\n csrr t2, stval\n sd t2, 0(t1)\n"
    " addi t0, t0, -1\n beqz t0, 1f\n"
    " csrr t0, sepc\n addi t0, t0, 4\n csrw sepc, t0\n sret\n"
    "1: csrw sepc, ra\n sret\n"
    ".option pop\n");
extern void entry(void);

#define TRAPS(what, at) \
    do { \
        cause = 99, value = 0; \
        asm volatile(".option push\n.option norvc\n" what "\n.option pop" : : "r"(at) : "t0", "t1", "t2", "ra", "memory"); \
        put('0' + cause / 10 % 10); \
        put('0' + cause % 10); \
        put(value == (u64)(at) ? '=' : ' '); \
    } while (0)

int main(void)
{
    static u64 word[2];
    asm volatile("csrw stvec, %0" : : "r"(entry));
    TRAPS(".word 0", 0);                                      /* illegal: nothing */
    TRAPS(".word 0xffffffff", 0);                             /* illegal: nothing either */
    TRAPS("csrr t0, 0x300", 0);                               /* a register of machine mode */
    TRAPS("csrw 0xc00, t0", 0);                               /* a register that can't be written */
    TRAPS("mret", 0);                                         /* there is no machine mode */
    TRAPS(".insn r 0x0b, 0, 1, x0, x0, x0", 0);               /* xend without a transaction */
    TRAPS(".insn r 0x0b, 0, 99, x0, x0, x0", 0);              /* no instruction of transactional memory */
    TRAPS("ebreak", 0);
    TRAPS("ld t0, 0(%0)", 0x10UL);                            /* no memory and no device */
    TRAPS("sd t0, 0(%0)", 0x7fffffff00000000UL);
    TRAPS("amoadd.d t0, t0, (%0)", (char *)word + 1);         /* not aligned */
    TRAPS("lr.d t0, (%0)", (char *)word + 4);
    TRAPS("jalr ra, 0(%0)", 0x4000UL);                        /* no instructions there */
    put('\n');
    return 0;
}
