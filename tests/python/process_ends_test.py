"""What importing prepares in a process, and how one may end."""

import pytest
from wrapped import run_program


@pytest.mark.spec("1.1 import side effects")
def test_importing_prepares_the_process():
    done = run_program(
        "import os, sys, faulthandler\n"
        "os.environ.pop('RDMAV_FORK_SAFE', None)\n"
        "import poptorch\n"
        "assert os.environ['RDMAV_FORK_SAFE'] == '1' and faulthandler.is_enabled()\n"
        "assert sys.excepthook is not sys.__excepthook__\n"
        "raise LookupError('of the user')\n"
    )
    assert done.returncode == 1
    assert "[critical]" in done.stderr.lower() and "Traceback" in done.stderr
    assert done.stderr.rstrip().endswith("LookupError: of the user")
    kept = run_program(
        "import os, poptorch; print(os.environ['RDMAV_FORK_SAFE'])", RDMAV_FORK_SAFE="0"
    )
    assert kept.stdout == "0\n"
    silent = run_program("import poptorch; raise LookupError('seen')", POPTORCH_LOG_LEVEL="OFF")
    assert silent.stderr.rstrip().endswith("LookupError: seen")  # an error is never lost


@pytest.mark.spec("1.1 import side effects")
def test_sigterm_shows_where_the_program_was():
    done = run_program(
        "import os, signal, poptorch\n"
        "def the_busy_function():\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    import time; time.sleep(60)\n"
        "the_busy_function()\n"
    )
    assert done.returncode == -15 and "the_busy_function" in done.stderr


@pytest.mark.spec("1.1 import side effects")
def test_a_program_may_end_with_open_executors():
    done = run_program(
        "import atexit, torch, poptorch\n"
        "net = torch.nn.Linear(2, 2)\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.l = torch.nn.Linear(2, 2)\n"
        "    def forward(self, x):\n"
        "        return poptorch.identity_loss(self.l(x), 'sum')\n"
        "quiet = poptorch.Options().showCompilationProgressBar(False)\n"
        "training = poptorch.trainingModel(Net(), quiet)\n"
        "inference = poptorch.inferenceModel(training, quiet)\n"
        "training(torch.ones(2, 2)); inference(torch.ones(2, 2))\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
