/**
 * A program that writes to a folder store as fast as possible and prints `<counter> <keys>` for each completed write,
 * until it is killed. Usage: `node folder-writer.js <folder>`
 */
import { writeSync } from "node:fs";
import { systemClock } from "../../../src/base/clock.ts";
import { silentLogger } from "../../../src/record/log/logger.ts";
import { openFolderStore } from "../../../src/store/folder-store.ts";

const [, , folder = ""] = process.argv;
const store = await openFolderStore(folder, { clock: systemClock, logger: silentLogger });
const filler = "x".repeat(20_000);
for (;;) {
  const results = await Promise.all(
    Array.from({ length: 20 }, async (_, i) => {
      await store.set(`filler${i}`, filler);
      return store.add("counter", 1);
    }),
  );
  const total = Math.max(...results.map((result) => result.total));
  await store.set(`at${total}`, "1");
  writeSync(1, `${total}\n`);
}
