"""Memory, collectives and roofline time of JAX programs on devices that need not be attached.

Programs are lowered for described devices, compiled and never run:

    target = devices.find_target("v5e:4x4")
    program = AbstractProgram("step", lambda: jax.jit(step).lower(*shapes), {})
    print(plan_program(program, target).memory)

``longsum plan`` lowers the programs of longsum_jax for it; nothing here depends
on a model.
"""
