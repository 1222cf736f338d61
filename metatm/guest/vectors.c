/*
 * Executes each instruction on operands that are drawn, and prints a hash of its results for each. Run on this machine and
 * under QEMU, it prints the same.
 */
typedef unsigned long u64;
typedef unsigned int u32;

static void put(char c)
{
    register u64 a0 asm("a0") = (unsigned char)c, a7 asm("a7") = 1;
    asm volatile("ecall" : "+r"(a0) : "r"(a7) : "memory");
}

static void print(const char *name, u64 hash)
{
    while (*name)
        put(*name++);
    put(' ');
    for (int i = 60; i >= 0; i -= 4)
        put("0123456789abcdef"[hash >> i & 15]);
    put('\n');
}

static u64 seed;

static u64 draw(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed * 0x2545f4914f6cdd1dUL;
}

static const u64 special[] = {
    0, 1, -1UL, 1UL << 63, ~(1UL << 63), 0x80000000, 0x7fffffff, 0xffffffff80000000, 63, 64,
    /* numbers of 64 bits: 1, -1, infinities, NaNs, the smallest ones, the largest, 2^31, 2^63 */
    0x3ff0000000000000, 0xbff0000000000000, 0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000,
    0x7ff0000000000001, 0xfff8000000000001, 0x0010000000000000, 0x000fffffffffffff, 0x8000000000000001,
    0x7fefffffffffffff, 0x41e0000000000000, 0xc1e0000000000000, 0x43e0000000000000, 0xc3e0000000000000,
    0x41efffffffe00000, 0x3fe0000000000000, 0x3ff8000000000000, 0xbfe0000000000000,
    /* of 32 bits, boxed and not */
    0xffffffff3f800000, 0xffffffffbf800000, 0xffffffff7f800000, 0xffffffffff800000, 0xffffffff7fc00000,
    0xffffffff7f800001, 0xffffffff00800000, 0xffffffff007fffff, 0xffffffff80000001, 0xffffffff7f7fffff,
    0xffffffff4f000000, 0xffffffffcf000000, 0xffffffff5f000000, 0x000000003f800000, 0xffffffff3f000000,
};

static u64 operand(void)
{
    u64 r = draw();
    switch (r % 8) {
    case 0: case 1: case 2: return special[r / 8 % (sizeof special / sizeof *special)];
    case 3: return draw() | 0xffffffff00000000;
    case 4: return draw() >> (r / 8 % 64);
    case 5: return (draw() & 0x800fffffffffffff) | (0x3f0 + r / 8 % 32) << 52;
    case 6: return 0xffffffff00000000 | (draw() & 0x807fffff) | (0x70 + r / 8 % 32) << 23;
    default: return draw();
    }
}

#define ROUNDS 2000
#define MIX(h, v) ((h) = ((h) ^ (v)) * 0x9e3779b97f4a7c15UL, (h) ^= (h) >> 29)
#define LOOP(name, ...) \
    do { \
        u64 h = 0; \
        seed = 88172645463325252UL; \
        for (int i = 0; i < ROUNDS; i++) { \
            u64 a = operand(), b = operand(), c = operand(), r = 0, f = 0; \
            (void)a; (void)b; (void)c; (void)f; \
            __VA_ARGS__; \
            MIX(h, r); \
        } \
        print(name, h); \
    } while (0)

#define RR(name) LOOP(name, asm volatile(name " %0, %1, %2" : "=r"(r) : "r"(a), "r"(b)))
#define RI(name, imm) LOOP(name "-" #imm, asm volatile(name " %0, %1, " #imm : "=r"(r) : "r"(a)))
#define CLEAR "csrw fflags, zero\n"
#define FLAGS "\ncsrr %1, fflags"
#define TO_F(a) ({ double d; asm volatile("fmv.d.x %0, %1" : "=f"(d) : "r"(a)); d; })
#define FROM_F(d) ({ u64 x; asm volatile("fmv.x.d %0, %1" : "=r"(x) : "f"(d)); x; })

#define FF(name, rm) LOOP(name rm, { \
        double x = TO_F(a), y = TO_F(b), z; \
        asm volatile(CLEAR name " %0, %2, %3" rm FLAGS : "=&f"(z), "=r"(f) : "f"(x), "f"(y)); \
        r = FROM_F(z) + f; })
#define F1(name, rm) LOOP(name rm, { \
        double x = TO_F(a), z; \
        asm volatile(CLEAR name " %0, %2" rm FLAGS : "=&f"(z), "=r"(f) : "f"(x)); \
        r = FROM_F(z) + f; })
#define FFF(name, rm) LOOP(name rm, { \
        double x = TO_F(a), y = TO_F(b), w = TO_F(c), z; \
        asm volatile(CLEAR name " %0, %2, %3, %4" rm FLAGS : "=&f"(z), "=r"(f) : "f"(x), "f"(y), "f"(w)); \
        r = FROM_F(z) + f; })
#define FX(name, rm) LOOP(name rm, { \
        double x = TO_F(a); \
        asm volatile(CLEAR name " %0, %2" rm FLAGS : "=&r"(r), "=r"(f) : "f"(x)); \
        r += f; })
#define FFX(name) LOOP(name, { \
        double x = TO_F(a), y = TO_F(b); \
        asm volatile(CLEAR name " %0, %2, %3" FLAGS : "=&r"(r), "=r"(f) : "f"(x), "f"(y)); \
        r += f; })
#define XF(name, rm) LOOP(name rm, { \
        double z; \
        asm volatile(CLEAR name " %0, %2" rm FLAGS : "=&f"(z), "=r"(f) : "r"(a)); \
        r = FROM_F(z) + f; })
#define AMO(name) LOOP(name, { \
        static u64 cell[2]; \
        cell[0] = b; \
        asm volatile(name " %0, %2, (%1)" : "=&r"(r) : "r"(cell), "r"(a) : "memory"); \
        r = r * 31 + cell[0]; })
#define MEM(load, store) LOOP(load "-" store, { \
        static u64 cell[3]; \
        cell[0] = b; cell[1] = c; \
        char *at = (char *)cell + a % 9; \
        asm volatile(store " %1, 0(%2)\n" load " %0, 0(%2)" : "=&r"(r) : "r"(a), "r"(at) : "memory"); \
        r = r * 31 + cell[0] + cell[1]; })
#define MODES(M, name) M(name, ", rne"); M(name, ", rtz"); M(name, ", rdn"); M(name, ", rup"); M(name, ", rmm")

static void integers(void)
{
    RR("add"); RR("sub"); RR("sll"); RR("slt"); RR("sltu"); RR("xor"); RR("srl"); RR("sra"); RR("or"); RR("and");
    RR("addw"); RR("subw"); RR("sllw"); RR("srlw"); RR("sraw");
    RR("mul"); RR("mulh"); RR("mulhsu"); RR("mulhu"); RR("div"); RR("divu"); RR("rem"); RR("remu");
    RR("mulw"); RR("divw"); RR("divuw"); RR("remw"); RR("remuw");
    RI("addi", -2048); RI("slti", 2047); RI("sltiu", -1); RI("xori", -1); RI("ori", 85); RI("andi", -256);
    RI("slli", 63); RI("srli", 33); RI("srai", 1); RI("addiw", 2047); RI("slliw", 31); RI("srliw", 5); RI("sraiw", 17);
    MEM("lb", "sb"); MEM("lbu", "sh"); MEM("lh", "sh"); MEM("lhu", "sw"); MEM("lw", "sw"); MEM("lwu", "sd"); MEM("ld", "sd");
    AMO("amoadd.w"); AMO("amoswap.w"); AMO("amoxor.w"); AMO("amoor.w"); AMO("amoand.w"); AMO("amomin.w");
    AMO("amomax.w"); AMO("amominu.w"); AMO("amomaxu.w");
    AMO("amoadd.d"); AMO("amoswap.d"); AMO("amoxor.d"); AMO("amoor.d"); AMO("amoand.d"); AMO("amomin.d");
    AMO("amomax.d"); AMO("amominu.d"); AMO("amomaxu.d");
    LOOP("lr-sc", {
        static u64 cell;
        cell = b;
        u64 old;
        asm volatile("lr.d %0, (%2)\nsc.d %1, %3, (%2)" : "=&r"(old), "=&r"(r) : "r"(&cell), "r"(a) : "memory");
        r = r * 31 + old + cell;
    });
}

/* Compressed forms name some registers only. */
#define CRR(name) LOOP(name, { \
        register u64 x asm("a0") = a; \
        register u64 y asm("a1") = b; \
        asm volatile(name " %0, %1" : "+r"(x) : "r"(y)); \
        r = x; })
#define CRI(name, imm) LOOP(name "-" #imm, { \
        register u64 x asm("a0") = a; \
        asm volatile(name " %0, " #imm : "+r"(x)); \
        r = x; })
#define CMEM(load, store, at) LOOP(load "-" store "-" #at, { \
        static u64 cell[32]; \
        cell[(at) / 8] = b; cell[(at) / 8 + 1] = c; \
        register u64 x asm("a0") = a; \
        register u64 *base asm("a1") = cell; \
        asm volatile(store " %0, " #at "(%1)\n" load " %0, " #at "(%1)" : "+r"(x) : "r"(base) : "memory"); \
        r = x * 31 + cell[(at) / 8] + cell[(at) / 8 + 1]; })
#define CSP(load, store, at) LOOP(load "-" store "-" #at, { \
        register u64 x asm("a0") = a; \
        u64 *cell = (u64 *)stack; \
        asm volatile("mv t0, sp\nmv sp, %1\n" store " %0, " #at "(sp)\n" load " %0, " #at "(sp)\nmv sp, t0" \
                     : "+r"(x) : "r"(cell) : "t0", "memory"); \
        r = x * 31 + cell[(at) / 8]; })

static void compressed(void)
{
    static char stack[512] __attribute__((aligned(16)));
    CRR("c.mv"); CRR("c.add"); CRR("c.sub"); CRR("c.xor"); CRR("c.or"); CRR("c.and"); CRR("c.subw"); CRR("c.addw");
    CRI("c.addi", -32); CRI("c.addi", 31); CRI("c.addiw", -1); CRI("c.addiw", 0); CRI("c.li", -32); CRI("c.li", 31);
    CRI("c.lui", 1); CRI("c.lui", 0xfffe0); CRI("c.slli", 63); CRI("c.slli", 1); CRI("c.srli", 33); CRI("c.srai", 63);
    CRI("c.andi", -32); CRI("c.andi", 31);
    CMEM("c.lw", "c.sw", 0); CMEM("c.lw", "c.sw", 124); CMEM("c.ld", "c.sd", 0); CMEM("c.ld", "c.sd", 240);
    CSP("c.lwsp", "c.swsp", 0); CSP("c.lwsp", "c.swsp", 252); CSP("c.ldsp", "c.sdsp", 8); CSP("c.ldsp", "c.sdsp", 504);
    LOOP("c.fld-c.fsd", {
        static u64 cell[32];
        register double fa asm("fa0") = TO_F(a);
        register u64 *base asm("a1") = cell;
        asm volatile("c.fsd %0, 248(%1)\nc.fld %0, 248(%1)" : "+f"(fa) : "r"(base) : "memory");
        r = FROM_F(fa) + cell[31];
    });
    LOOP("c.fldsp-c.fsdsp", {
        register double fa asm("fa0") = TO_F(a);
        asm volatile("mv t0, sp\nmv sp, %1\nc.fsdsp %0, 496(sp)\nc.fldsp %0, 496(sp)\nmv sp, t0"
                     : "+f"(fa) : "r"(stack) : "t0", "memory");
        r = FROM_F(fa);
    });
    LOOP("c.addi4spn-c.addi16sp", {
        register u64 x asm("a0") = 0;
        asm volatile("mv t0, sp\nmv sp, %1\nc.addi16sp sp, -512\nc.addi4spn %0, sp, 1020\nc.addi16sp sp, 496\n"
                     "xor %0, %0, sp\nmv sp, t0" : "+r"(x) : "r"(a & ~15UL) : "t0");
        r = x;
    });
    LOOP("c.beqz-c.bnez-c.j", {
        register u64 x asm("a0") = a & 3;
        asm volatile("c.beqz %0, 1f\nc.addi %1, 1\nc.bnez %0, 2f\nc.addi %1, 2\n1: c.addi %1, 4\nc.j 3f\n2: c.addi %1, 8\n3:"
                     : "+r"(x), "+r"(r));
    });
    LOOP("c.jr-c.jalr", {
        asm volatile("la t0, 1f\nc.jr t0\nc.addi %0, 1\n1: la t0, 2f\nmv t1, ra\nc.jalr t0\nc.addi %0, 2\n2: sub t0, t0, ra\n"
                     "mv ra, t1\nadd %0, %0, t0" : "+r"(r) : : "t0", "t1", "ra");
    });
}

static void floats(void)
{
    MODES(FF, "fadd.d"); MODES(FF, "fsub.d"); MODES(FF, "fmul.d"); MODES(FF, "fdiv.d"); MODES(F1, "fsqrt.d");
    MODES(FF, "fadd.s"); MODES(FF, "fsub.s"); MODES(FF, "fmul.s"); MODES(FF, "fdiv.s"); MODES(F1, "fsqrt.s");
    MODES(FFF, "fmadd.d"); MODES(FFF, "fmsub.d"); MODES(FFF, "fnmadd.d"); MODES(FFF, "fnmsub.d");
    MODES(FFF, "fmadd.s"); MODES(FFF, "fmsub.s"); MODES(FFF, "fnmadd.s"); MODES(FFF, "fnmsub.s");
    FF("fsgnj.d", ""); FF("fsgnjn.d", ""); FF("fsgnjx.d", ""); FF("fmin.d", ""); FF("fmax.d", "");
    FF("fsgnj.s", ""); FF("fsgnjn.s", ""); FF("fsgnjx.s", ""); FF("fmin.s", ""); FF("fmax.s", "");
    FFX("feq.d"); FFX("flt.d"); FFX("fle.d"); FFX("feq.s"); FFX("flt.s"); FFX("fle.s");
    MODES(FX, "fcvt.w.d"); MODES(FX, "fcvt.wu.d"); MODES(FX, "fcvt.l.d"); MODES(FX, "fcvt.lu.d");
    MODES(FX, "fcvt.w.s"); MODES(FX, "fcvt.wu.s"); MODES(FX, "fcvt.l.s"); MODES(FX, "fcvt.lu.s");
    MODES(XF, "fcvt.d.l"); MODES(XF, "fcvt.d.lu"); XF("fcvt.d.w", ""); XF("fcvt.d.wu", "");
    MODES(XF, "fcvt.s.w"); MODES(XF, "fcvt.s.wu"); MODES(XF, "fcvt.s.l"); MODES(XF, "fcvt.s.lu");
    MODES(F1, "fcvt.s.d"); F1("fcvt.d.s", "");
    FX("fclass.d", ""); FX("fclass.s", ""); FX("fmv.x.w", ""); XF("fmv.w.x", "");
}

int main(void)
{
    integers();
    compressed();
    floats();
    return 0;
}
