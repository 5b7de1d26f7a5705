/**
 * A full disk under the configuration and the log: a save is refused and leaves the file as it was, log lines are lost,
 * requests go on.
 */
import { readFileSync, rmSync, statfsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { saveConfig } from "./save-config.mjs";

export const diskFaults = [
  {
    name: "disk full",
    uses: "disk",
    explains: [],
    forMs: [300, 2_000],
    recoveryMs: 0,
    needs: "disk",
    async begin(world) {
      const filler = join(world.disk, "filler");
      const before = readFileSync(world.config.file, "utf8");
      try {
        const { bsize, bfree } = statfsSync(world.disk);
        writeFileSync(filler, Buffer.alloc(bsize * bfree + bsize));
      } catch {
        // It took what there was.
      }
      // More than the block that the file has.
      const { status, text } = await saveConfig(world, world.config.text("too large ".repeat(2_000)));
      const end = () => rmSync(filler, { force: true });
      const after = readFileSync(world.config.file, "utf8");
      if (after !== before) return { broken: "a save on a full disk changed the file", end };
      // A descriptor limit may stop the admin interface too; the file is what counts.
      return status === 507 || status === 0 || text.includes("EMFILE")
        ? end
        : { broken: `a save on a full disk was answered with ${status}`, end };
    },
  },
];
