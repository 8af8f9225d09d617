"""Memory, collectives and roofline time of JAX programs on devices that need not be attached.

Programs are lowered for described devices, compiled and never run:

    from longsum_plan.devices import find_target
    from longsum_plan.plan import plan_program
    from longsum_plan.program import AbstractProgram

    target = find_target("v5e:4x4")
    # jax.ShapeDtypeStruct with shardings on a mesh of target.devices
    shapes = ...
    program = AbstractProgram(
        "step", lambda: jax.jit(step).lower(*shapes), parts={}
    )
    print(plan_program(program, target).memory)

For other devices than this process has, call ``devices.set_environment`` before
jax is imported.

``longsum plan`` lowers the programs of longsum_jax for it; nothing here depends
on a model.
"""
