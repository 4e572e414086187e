"""pdcc under torchrun, where the process numbered KILLED is killed in its tenth step."""

import os
import signal

from torch.optim.optimizer import register_optimizer_step_post_hook

from pdcc.cli import main

LAST = 10

if __name__ == "__main__":
    taken = []

    def note(*_):
        taken.append(True)
        if len(taken) == LAST and os.environ["RANK"] == os.environ["KILLED"]:
            os.kill(os.getpid(), signal.SIGKILL)

    register_optimizer_step_post_hook(note)
    main()
