import assert from "node:assert/strict";
import { test } from "node:test";
import { anAnsweredExchange, finishedRequest } from "../../test/support/exchange.ts";
import { createAccessLog } from "./access-log.ts";
import { silentLogger } from "./log/logger.ts";

const levels: [status: number | undefined, level: string][] = [
  [200, "info"],
  [404, "info"],
  [429, "info"],
  [499, "info"],
  [500, "warn"],
  [502, "warn"],
  [undefined, "info"],
];
for (const [status, level] of levels) {
  test(`a request that ended with ${status ?? "nothing"} is logged at ${level}`, () => {
    const said: string[] = [];
    const logger = {
      ...silentLogger,
      enabled: () => true,
      info: () => void said.push("info"),
      warn: () => void said.push("warn"),
    };
    createAccessLog(logger)(finishedRequest(anAnsweredExchange({}), { status, end: "complete", responseBytes: 0 }, 1));
    assert.deepEqual(said, [level]);
  });
}
