"""Tests have virtual IPUs of their own: they neither wait for a user's training nor disturb it."""

import atexit
import os
import shutil
import tempfile

if "TESSERA_DEVICE_DIR" not in os.environ:
    folder = tempfile.mkdtemp(prefix="tessera-test-devices-")
    os.environ["TESSERA_DEVICE_DIR"] = folder
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
