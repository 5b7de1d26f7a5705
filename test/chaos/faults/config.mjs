/**
 * Configurations that come while requests run: good ones, bad ones, and saves from the web UI. Nothing may fail.
 */
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { saveConfig } from "./save-config.mjs";

let version = 0;

export const configFaults = [
  {
    name: "good configuration",
    begin({ config }) {
      writeFileSync(`${config.file}~`, config.text(`version ${++version}`));
      renameSync(`${config.file}~`, config.file);
    },
  },
  {
    name: "bad configuration",
    begin({ config }, random) {
      const good = config.text("bad");
      const bad = random.pick([
        `${good}\nunknown: 1\n`,
        good.slice(0, random.between(20, good.length - 20)),
        "",
        "{",
        good.replace("pathPrefix: /web", "pathPrefix: 7"),
      ]);
      writeFileSync(config.file, bad);
      return () => writeFileSync(config.file, config.text("after a bad one"));
    },
  },
  {
    name: "save from the UI",
    async begin(world) {
      const { status, text } = await saveConfig(world, world.config.text(`saved ${++version}`));
      // Without descriptors the admin interface cannot be reached, or cannot open the file.
      if (status === 0 || text.includes("EMFILE")) return undefined;
      if (status !== 200) return { broken: `a save was answered with ${status}: ${text}` };
      const isWritten = readFileSync(world.config.file, "utf8") === world.config.text(`saved ${version}`);
      return isWritten ? undefined : { broken: "a save that was confirmed is not in the file" };
    },
  },
].map((row) => ({ uses: "disk", explains: [], forMs: [200, 1_500], recoveryMs: 0, ...row }));
