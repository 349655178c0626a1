"""Run as a process: loads the engine's library and prints what it is, as one line of JSON.

A process of its own, because a library built for another processor or driver can end or hang the one that loads it.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict


def main() -> None:
    from localrun.llama.devices import backends, gpu_devices
    from localrun.llama.library import supports_gpu, system_info
    from localrun.llama.rpc import supports_rpc
    from localrun.release import engine_release

    facts = {
        "build": engine_release(),
        "features": system_info(),
        "backends": backends(),
        "supports_gpu": supports_gpu(),
        "supports_rpc": supports_rpc(),
        "devices": [asdict(device) for device in gpu_devices()],
    }
    sys.stdout.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main()
