/**
 * A gateway that is asked to stop while it starts: whoever sees the port open may send SIGTERM, before "started" is
 * logged. The end is the same as later: exit code 0, nothing on standard error.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { configFile } from "../support/config-file.ts";
import { startGatewayProcess } from "../support/gateway-process.ts";

/** How many turns of the loop after a port is open the signal comes; the start takes some more of them. */
const LISTENERS = [
  { which: "the first", listeners: 1, turns: [0, 1, 3, 8] },
  { which: "the last", listeners: 3, turns: [0, 2, 5, 13] },
];

/** Loaded before the gateway: it signals itself, so that no scheduler decides when. */
function signalAfter(listeners: number, turns: number): string {
  const code = `
    import { Server } from "node:net";
    const { listen } = Server.prototype;
    let open = 0;
    const later = (turns) => turns === 0 ? process.kill(process.pid, "SIGTERM") : setImmediate(later, turns - 1);
    Server.prototype.listen = function (...args) {
      this.once("listening", () => { open += 1; if (open === ${listeners}) later(${turns}); });
      return listen.apply(this, args);
    };`;
  return `--import=data:text/javascript,${encodeURIComponent(code)}`;
}

for (const { which, listeners, turns: later } of LISTENERS) {
  test(`SIGTERM right after ${which} port is open, before the start is over: exit code 0`, async (t) => {
    const yaml = `config: { adminAddr: "127.0.0.1:0" }
gateways: { default: { port: 0, address: 127.0.0.1 }, two: { port: 0, address: 127.0.0.1 } }
routes: [{ policies: { directResponse: { status: 200, body: yes } } }]
`;
    const file = configFile(t, yaml);
    for (const turns of later) {
      const { exited } = startGatewayProcess(t, ["-f", file], {
        nodeFlags: [signalAfter(listeners, turns)],
      });
      const { code, signal, stdout, stderr } = await exited;
      assert.deepEqual([code, signal, stderr], [0, null, ""], `${turns} turns:\n${stdout}`);
      assert.match(stdout, /stopped|draining/, `${turns} turns`);
    }
  });
}
