/**
 * Starts compared programs in front of one backend, each with its configuration in a temporary folder. A program that
 * does not start is left out, so that a comparison survives it.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { withDeadline } from "./deadline.mjs";
import { freePort, start } from "./process.mjs";

const MAX_PREPARE_MS = 20_000;

/**
 * Calls `use` with the running contestants and stops them afterwards. `configure(program, place)` returns the text of
 * the configuration, or undefined if the program lacks the feature. `place` has the port, the folder, and `values`.
 * `prepare` is called for each contestant; if it fails, the contestant is left out.
 */
export async function withContestants({ programs, values, configure, prepare }, use) {
  const folder = mkdtempSync(join(tmpdir(), "gateway-bench-"));
  const running = [];
  const ready = [];
  try {
    for (const program of programs) {
      const place = { ...values, port: await freePort(), adminPort: await freePort(), folder };
      const text = configure(program, place);
      if (text === undefined) continue;
      const file = join(folder, `${place.port}.yaml`);
      writeFileSync(file, text);
      try {
        const started = await start(program.command, program.args(file, place), place.port, {
          spawn: { env: { ...process.env, ...program.environment } },
        });
        const contestant = { name: program.name, program, file, adminPort: place.adminPort, ...started };
        running.push(contestant);
        await withDeadline(prepare?.(contestant), MAX_PREPARE_MS);
        ready.push(contestant);
      } catch (error) {
        console.log(`${program.name} is missing in the next rows: ${error.message}`);
      }
    }
    return await use(ready);
  } finally {
    for (const contestant of running) await contestant.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}
