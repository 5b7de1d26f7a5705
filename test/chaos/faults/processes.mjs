/**
 * Processes that die, stop for a while and come back; and a gateway that may open no more files.
 */
import { spawnSync } from "node:child_process";
import { childrenOf, descriptors } from "../support/process-attributes.mjs";

const WEB = ["http", "stream", "websocket"];
/** Who notices a stand-in that is gone. The second provider alone is not noticed unless the first fails too. */
const NOTICED_BY = { web: WEB, mcp: ["mcp http"], llm: ["llm"], llm2: ["llm"], keys: ["jwt"] };

export const processFaults = [
  {
    name: "MCP child killed",
    uses: "children",
    explains: ["mcp stdio"],
    forMs: [0, 0],
    recoveryMs: 1_500,
    begin: (world, random) => signalChild(world, random, "SIGKILL"),
  },
  {
    name: "MCP child stopped",
    uses: "children",
    explains: ["mcp stdio"],
    forMs: [300, 2_000],
    recoveryMs: 1_500,
    begin: (world, random) => signalChild(world, random, "SIGSTOP"),
  },
  ...Object.entries(NOTICED_BY).flatMap(([role, explains]) => [
    {
      name: `${role} killed`,
      uses: role,
      explains,
      forMs: [100, 1_500],
      recoveryMs: 2_500,
      async begin({ standIns }) {
        await standIns[role].kill();
        return () => standIns[role].start();
      },
    },
    {
      name: `${role} stopped`,
      uses: role,
      explains,
      forMs: [300, 2_500],
      recoveryMs: 1_500,
      begin({ standIns }) {
        standIns[role].signal("SIGSTOP");
        return () => standIns[role].signal("SIGCONT");
      },
    },
  ]),
  {
    name: "few descriptors",
    uses: "descriptors",
    explains: "all",
    forMs: [200, 1_000],
    recoveryMs: 1_500,
    begin({ gateway }) {
      const limit = (soft) => spawnSync("prlimit", ["--pid", String(gateway.child.pid), `--nofile=${soft}:`]);
      const before = /nofile\s+\D*(\d+)/i.exec(
        spawnSync("prlimit", ["--pid", String(gateway.child.pid), "--nofile", "--noheadings"], { encoding: "utf8" })
          .stdout,
      );
      limit(descriptors(gateway.child.pid) + 3);
      return () => limit(before?.[1] ?? 1024);
    },
  },
];

function signalChild({ gateway }, random, signal) {
  const children = childrenOf(gateway.child.pid);
  if (children.length === 0) return undefined;
  const { pid } = random.pick(children);
  const send = (name) => {
    try {
      process.kill(pid, name);
    } catch {
      // It ended by itself.
    }
  };
  send(signal);
  return signal === "SIGSTOP" ? () => send("SIGCONT") : undefined;
}
