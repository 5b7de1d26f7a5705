/**
 * Both layouts in their one internal form: each `test/golden/config/<name>.yaml` beside the `.json` that it becomes.
 * With UPDATE_GOLDEN=1 the expectations are written anew, to be read in the diff.
 */
import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { finish } from "../../src/base/sliced-work.ts";
import { loadConfig } from "../../src/config/load/load.ts";

const folder = join(process.cwd(), "test/golden/config");

for (const name of readdirSync(folder).filter((file) => file.endsWith(".yaml"))) {
  test(`${name} becomes what stands beside it [S2.1-4] [S2.1-7]`, () => {
    const loaded = finish(loadConfig([{ file: name, text: readFileSync(join(folder, name), "utf8") }], {}));
    assert.ok(loaded.ok, loaded.ok ? "" : loaded.problems.map((problem) => problem.toLine()).join("\n"));
    // Where something was written is for messages; what it says is what counts here.
    const text = `${JSON.stringify(loaded.config, (key, value) => (key === "place" ? undefined : value), 2)}\n`;
    const golden = join(folder, name.replace(/\.yaml$/, ".json"));
    if (process.env.UPDATE_GOLDEN === "1") writeFileSync(golden, text);
    assert.equal(text, readFileSync(golden, "utf8"));
  });
}
