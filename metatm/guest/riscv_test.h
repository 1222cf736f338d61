/*
 * The environment of the official riscv-tests for this machine, which has no machine mode: a test runs in supervisor mode and powers
 * off, after a failure with that as the reason. METATM_RISCV_TESTS names their sources to the tests.
 */
#define RVTEST_RV64U	.macro init; .endm
#define RVTEST_RV64UF	.macro init; li t0, 0x6000; csrs sstatus, t0; csrwi fcsr, 0; .endm
#define TESTNUM		gp

/* The header of a kernel's Image, as in start.S. A trap is a failure. */
#define RVTEST_CODE_BEGIN \
	.section .head, "ax"; \
	.globl _start; \
_start:	j begin; \
	.balign 8; \
	.dword 0x200000, 0x100000, 0, 0, 0; \
	.ascii "RISCV\0\0\0"; \
	.ascii "RSC\x05"; \
	.word 0; \
begin:	la t0, failed; \
	csrw stvec, t0; \
	init; \
	li TESTNUM, 0; \
	j tests; \
	.balign 4; \
failed:	li a0, 0; \
	li a1, 1; \
off:	li a7, 0x53525354; \
	li a6, 0; \
	ecall; \
	.text; \
tests:
#define RVTEST_CODE_END
#define RVTEST_PASS	li a0, 0; li a1, 0; j off
#define RVTEST_FAIL	j failed
#define EXTRA_DATA
#define RVTEST_DATA_BEGIN	EXTRA_DATA .align 4; .global begin_signature; begin_signature:
#define RVTEST_DATA_END		.align 4; .global end_signature; end_signature:
