/**
 * Mixed traffic: for each kind a few workers that ask, check the answer and ask again, until told to stop. Between two
 * jobs they can be held, so that something can be measured in silence.
 */
import { http } from "../traffic/http.mjs";
import { jwt } from "../traffic/jwt.mjs";
import { limited } from "../traffic/limited.mjs";
import { llm } from "../traffic/llm.mjs";
import { mcpHttp, mcpStdio } from "../traffic/mcp.mjs";
import { stream } from "../traffic/stream.mjs";
import { websocket } from "../traffic/websocket.mjs";
import { pause } from "./world.mjs";

/** Each has a `name`, and `once(world, random)`, which throws when the answer fails or is wrong. */
const KINDS = [http, stream, websocket, mcpStdio, mcpHttp, llm, jwt, limited];

export function startTraffic(world, ledger, random, workersPerKind = 2) {
  let isStopped = false;
  let hold;
  let busy = 0;
  const workers = KINDS.flatMap((kind) => Array.from({ length: workersPerKind }, () => work(kind)));

  async function work({ name, once }) {
    while (!isStopped) {
      if (hold) await hold.promise;
      const beganMs = Date.now();
      busy += 1;
      try {
        await once(world, random);
        ledger.answered(name);
      } catch (error) {
        ledger.failed(name, beganMs, error);
      }
      busy -= 1;
      await pause(random.between(5, 40));
    }
  }

  return {
    /** Resolves when no request is under way. */
    async hold() {
      hold = {};
      hold.promise = new Promise((resolve) => {
        hold.release = resolve;
      });
      while (busy > 0) await pause(10);
    },
    release() {
      hold?.release();
      hold = undefined;
    },
    async stop() {
      isStopped = true;
      await Promise.all(workers);
    },
  };
}
