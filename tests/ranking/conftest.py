import pytest

TEXT = """\
A Report on Bridges

Introduction

The town has three bridges. We inspected all of them in 1998, and the old bridge by the mill is in
danger. Nobody knows who built it!

Results

ANNA: The old bridge was built of oak, and oak rots under water.
BEN: How long will the bridge last? I think it will last two years.

The old bridge by the mill is in danger, as we said. The town should close the bridge (see table 2)
before winter, and build another bridge of stone.

Conclusion

We conclude that the old bridge must be closed. Dr. Hill and Ms. Ford of Hill & Co. agree.
"""


@pytest.fixture
def text():
    return TEXT
