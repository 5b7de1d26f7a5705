/**
 * `npm run import-table -- <folder>`: imports every YAML file of a folder with configurations of agentgateway, and prints
 * for each whether the result is valid, what was left out or closed, and whether the file loads directly.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { build } from "esbuild";
import { inlineOnDemand } from "./on-demand.mjs";
import { root } from "./steps.mjs";

const [folder] = process.argv.slice(2);
if (folder === undefined) {
  process.stderr.write("usage: npm run import-table -- <folder with configurations of agentgateway>\n");
  process.exit(2);
}
const { importAgentgateway, dropInvalid, finish, loadConfig, loadForeign, readSource, yamlText } = await loadCode();

const files = readdirSync(folder).filter((name) => /\.ya?ml$/.test(name));
const total = { files: files.length, valid: 0, complete: 0, direct: 0 };
for (const file of files) {
  const text = readFileSync(join(folder, file), "utf8");
  const variables = Object.fromEntries([...text.matchAll(/\$\{?(\w+)/g)].map(([, name]) => [name, "1"]));
  const check = (config, environment = {}) => {
    const source = { file, text: yamlText(config) };
    const loaded = finish(loadConfig([source], { ...variables, ...environment }));
    return loaded.ok ? [] : loaded.problems;
  };
  const conversion = importAgentgateway(readSource(text));
  dropInvalid(conversion, check);
  const isValid = check(conversion.config).length === 0;
  const lost = [...conversion.leftOut, ...conversion.closed.map((line) => `closed: ${line}`)];
  const sources = [{ file, text }];
  const isDirect = finish(loadForeign(finish(loadConfig(sources, variables)), sources, variables)).ok;
  total.valid += Number(isValid);
  total.complete += Number(isValid && lost.length === 0);
  total.direct += Number(isDirect);
  const verdict = isValid ? (lost.length === 0 ? "complete" : "partial") : "invalid";
  process.stdout.write(`${verdict.padEnd(9)} ${isDirect ? "direct" : "import"} ${file}\n`);
  for (const line of lost) process.stdout.write(`            ${line}\n`);
}
process.stdout.write(
  `${total.files} files: ${total.valid} valid, ${total.complete} with every setting, ${total.direct} load directly\n`,
);

async function loadCode() {
  const out = mkdtempSync(join(tmpdir(), "gateway-import-"));
  try {
    await build({
      absWorkingDir: root,
      plugins: [inlineOnDemand],
      stdin: {
        resolveDir: join(root, "src"),
        contents: `export { importAgentgateway } from "./config/import/agentgateway.ts";
export { dropInvalid } from "./config/import/drop-invalid.ts";
export { finish } from "./base/sliced-work.ts";
export { loadForeign } from "./config/load/load.ts";
export { loadConfig } from "./config/load/load.ts";
export { yamlText } from "./base/yaml-text.ts";
import { peerInput } from "./base/peer-inputs.ts";
import { readYaml } from "./base/read-yaml.ts";
const FILE = peerInput("file/imported-configuration");
export const readSource = (text) => readYaml(FILE, text);`,
      },
      outfile: join(out, "code.mjs"),
      bundle: true,
      format: "esm",
      platform: "node",
      target: "node20.19",
      banner: {
        js: 'import { createRequire as __createRequire } from "node:module"; const require = __createRequire(import.meta.url);',
      },
      logLevel: "error",
    });
    return await import(pathToFileURL(join(out, "code.mjs")).href);
  } finally {
    rmSync(out, { recursive: true, force: true });
  }
}
