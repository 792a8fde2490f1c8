"""The LLVM IR of a kernel, written pass by pass.

A writer gets the problem without data (`BlockProblem.code_key`): its code serves all problems that are the same
without them. Fields of several components are several applications, which run over `Builder.turns`.
"""
