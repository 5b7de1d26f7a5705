/** Changes of a folder store while none of them is written. `run` makes `n` changes for `countSteps`. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { silentLogger } from "../../../src/record/log/logger.ts";
import { openFolderStore } from "../../../src/store/folder-store.ts";
import { JournalFile } from "../../../src/store/journal.ts";
import type { Store } from "../../../src/store/store.ts";
import { fakeClock } from "../fake-clock.ts";

type Changes = (store: Store, n: number) => Promise<unknown>[];
const numbers = (count: number): number[] => [...new Array(count).keys()];

const CHANGES: Readonly<Record<string, Changes>> = {
  "other keys": (store, n) => numbers(n).map((i) => store.set(`sessions/${i}`, "x")),
  "the same key": (store, n) => numbers(n).map((i) => store.set("sessions/a", `${i}`)),
  counters: (store, n) => numbers(n).map((i) => store.add(`budgets/${i}`, 1)),
  "added and deleted": (store, n) =>
    numbers(n).flatMap((i) => [store.set(`sessions/${i}`, "x"), store.delete(`sessions/${i}`)]),
};

export const WORKLOADS = Object.keys(CHANGES).flatMap((name) => [`${name}, one turn`, `${name}, during a write`]);

export async function run(workload: string, n: number): Promise<void> {
  const [name = "", when] = workload.split(", ");
  const folder = mkdtempSync(join(tmpdir(), "slow-disk-"));
  const store = await openFolderStore(folder, { clock: fakeClock(), logger: silentLogger });
  const { append } = JournalFile.prototype;
  let release = (): void => undefined;
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  try {
    const first: Promise<unknown>[] = [];
    if (when === "during a write") {
      await new Promise<void>((begun) => {
        JournalFile.prototype.append = async function (text) {
          begun();
          await held;
          await append.call(this, text);
        };
        first.push(store.set("first", "x"));
      });
    }
    const changes = CHANGES[name]?.(store, n);
    if (changes === undefined) throw new Error(`no workload has the name ${workload}`);
    release();
    await Promise.all([...first, ...changes]);
  } finally {
    JournalFile.prototype.append = append;
    await store.close();
    rmSync(folder, { recursive: true, force: true });
  }
}
