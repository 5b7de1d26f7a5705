/**
 * `npm run test:ratelimit-service -- host:port`: runs the scenarios of global limits with a running rate limit service
 * that uses the configuration of examples/limits-global/ratelimit.
 */
import { spawnSync } from "node:child_process";
import { connect } from "node:net";
import { root } from "./steps.mjs";

const address = process.argv[2] ?? process.env.RATE_LIMIT_SERVICE;
if (!address || !/:\d+$/.test(address)) {
  console.error("usage: npm run test:ratelimit-service -- host:port");
  process.exit(2);
}
const [, host, port] = /^\[?(.*?)\]?:(\d+)$/.exec(address);
await new Promise((resolve) => {
  const socket = connect(Number(port), host, () => {
    socket.destroy();
    resolve();
  });
  socket.once("error", (error) => {
    console.error(`no rate limit service at ${address}: ${error.message}`);
    process.exit(1);
  });
});
const run = spawnSync(process.execPath, ["scripts/test.mjs", "test/scenario/limits-global"], {
  cwd: root,
  stdio: "inherit",
  env: { ...process.env, RATE_LIMIT_SERVICE: address },
});
process.exit(run.status ?? 1);
