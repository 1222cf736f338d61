/* Start of a program that runs without a kernel: the header of a kernel's Image, a stack, and the BSS. */
	.section .head, "ax"
	.globl _start
_start:
	j begin
	.balign 8
	.dword 0x200000			/* where it is loaded, from the start of memory */
	.dword _end - _start		/* its size */
	.dword 0, 0, 0
	.ascii "RISCV\0\0\0"
	.ascii "RSC\x05"
	.word 0
begin:
	.option push
	.option norelax
	la gp, __global_pointer$
	.option pop
	la sp, _stack
	li t0, 0x6000
	csrs sstatus, t0		/* floating point on */
	la t0, _bss
	la t1, _end
1:	bgeu t0, t1, 2f
	sd zero, (t0)
	addi t0, t0, 8
	j 1b
2:	call main
	li a7, 0x53525354		/* power off */
	li a6, 0
	li a0, 0
	li a1, 0
	ecall
3:	j 3b
