/** The release files: the SBOM follows the rules of CycloneDX 1.6 and lists the bundle, and the notes come from the changelog. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";

const root = process.cwd();

interface Component {
  readonly type: string;
  readonly "bom-ref": string;
  readonly group?: string;
  readonly name: string;
  readonly version: string;
  readonly purl: string;
  readonly licenses: readonly { readonly expression?: string; readonly license?: { readonly id: string } }[];
}

interface Bom {
  readonly bomFormat: string;
  readonly specVersion: string;
  readonly serialNumber: string;
  readonly version: number;
  readonly metadata: { readonly component: Component };
  readonly components: readonly Component[];
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn?: readonly string[] }[];
}

interface ReleaseModule {
  releaseNotes(changelog: string, version: string): string;
  releaseProblems(changelog: string, version: string): string[];
}

const load = <Module>(name: string): Promise<Module> =>
  import(pathToFileURL(join(root, "scripts", name)).href) as Promise<Module>;

/** Returns violations of the schema's rules for the parts that the SBOM uses. */
function violations(bom: Bom): string[] {
  const found: string[] = [];
  const rule = (holds: boolean, text: string): void => void (holds || found.push(text));
  const all = [bom.metadata.component, ...bom.components];
  const refs = all.map((one) => one["bom-ref"]);
  rule(bom.bomFormat === "CycloneDX" && bom.specVersion === "1.6", "format");
  rule(Number.isInteger(bom.version) && bom.version >= 1, "version");
  rule(
    /^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/.test(bom.serialNumber),
    "serialNumber",
  );
  rule(new Set(refs).size === refs.length, "bom-ref is unique");
  for (const one of all) {
    rule(["application", "library"].includes(one.type), `${one.name}: type`);
    rule(one.name !== "" && one.version !== "", `${one.name}: name and version`);
    rule(/^pkg:npm\/(?:%40[^/@]+\/)?[^/@]+@[^/@]+$/.test(one.purl), `${one.name}: purl`);
    rule(
      one.licenses.every(({ license, expression }) => (license === undefined) !== (expression === undefined)),
      `${one.name}: licenses`,
    );
  }
  for (const { ref, dependsOn = [] } of bom.dependencies)
    rule(
      [ref, ...dependsOn].every((one) => refs.includes(one)),
      `${ref}: dependency`,
    );
  rule(
    new Set(bom.dependencies.map(({ ref }) => ref)).size === bom.dependencies.length,
    "a dependency is listed twice",
  );
  return found;
}

test("the SBOM of some packages follows the schema, with scopes and each package once", async () => {
  const { sbom } = await load<{ sbom(folders: readonly string[]): Bom }>("sbom.mjs");
  const folders = ["node_modules/yaml", "node_modules/@bufbuild/cel", "node_modules/yaml"];
  const bom = sbom(folders);
  assert.deepEqual(violations(bom), []);
  assert.deepEqual(
    bom.components.map(({ group, name }) => [group, name]),
    [
      ["@bufbuild", "cel"],
      [undefined, "yaml"],
    ],
  );
  assert.equal(bom.serialNumber, sbom([...folders].reverse()).serialNumber);
  const broken = { ...bom, components: [...bom.components, ...bom.components] };
  assert.notDeepEqual(violations(broken), []);
});

test("the SBOM of the build lists every bundled package with its version", () => {
  const bom = JSON.parse(readFileSync(join(root, "dist", "sbom.cdx.json"), "utf8")) as Bom;
  assert.deepEqual(violations(bom), []);
  const licenses = readFileSync(join(root, "dist", "THIRD-PARTY-LICENSES.txt"), "utf8");
  const bundled = [...licenses.matchAll(/^={80}\n(\S+) (\S+) \(/gm)].map(([, name, version]) => `${name}@${version}`);
  assert.ok(bundled.length > 40);
  const listed = bom.components.map(({ group, name, version }) => `${group ? `${group}/` : ""}${name}@${version}`);
  assert.deepEqual(listed.sort(), [...new Set(bundled)].sort());
});

test("the bundles keep their lines and the names of source files, so that stack traces can be read", () => {
  const dist = join(root, "dist");
  const bundles = readdirSync(dist).filter((name) => name.endsWith(".js"));
  const texts = bundles.map((name) => readFileSync(join(dist, name), "utf8"));
  for (const file of ["src/app/app.ts", "src/mcp/mcp-backend.ts", "src/llm/ai-backend.ts"])
    assert.ok(
      texts.some((text) => text.includes(`\n// ${file}\n`)),
      file,
    );
  const wide = bundles.filter((_, at) => /[^\0-\u00ff]/.test(texts[at] ?? ""));
  assert.deepEqual(wide, [], "V8 keeps these files in memory with two bytes per character");
});

const CHANGELOG =
  "# Changelog\n\n## Unreleased\n\n## [1.1.0] - 2026-02-03\n\n### Added\n\n- New.\n\n## [1.0.0] - 2026-01-01\n\n- Old.\n";

test("release notes are the section of the version", async () => {
  const { releaseNotes } = await load<ReleaseModule>("release-notes.mjs");
  const notes = releaseNotes(CHANGELOG, "1.1.0");
  assert.match(notes, /- New\./);
  assert.doesNotMatch(notes, /Old/);
});

const problems: [name: string, changelog: string, problem: RegExp | undefined][] = [
  ["a complete changelog", CHANGELOG, undefined],
  [
    "lines that are not part of a version",
    CHANGELOG.replace("## Unreleased\n", "## Unreleased\n\n- Later.\n"),
    /move the lines/,
  ],
  ["a version without a date", CHANGELOG.replace("2026-02-03", "Unreleased"), /no release date/],
  ["a version that is not listed", CHANGELOG.replace("[1.1.0]", "[1.2.0]"), /has no section/],
];
for (const [name, changelog, problem] of problems) {
  test(`a release with ${name} ${problem ? "is rejected" : "is possible"}`, async () => {
    const { releaseProblems } = await load<ReleaseModule>("release-notes.mjs");
    const found = releaseProblems(changelog, "1.1.0");
    if (problem) assert.match(found.join("\n"), problem);
    else assert.deepEqual(found, []);
  });
}

test("the version of the package has a section in CHANGELOG.md, below the unreleased changes", () => {
  const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { version: string };
  const headings = readFileSync(join(root, "CHANGELOG.md"), "utf8").match(/^## .*$/gm) ?? [];
  assert.equal(headings[0], "## Unreleased");
  assert.ok(headings.some((heading) => heading.startsWith(`## [${version}] - `)));
});

test("the notes of the first version list what exists in at most 60 lines, by task", () => {
  const [, section = ""] = /^## \[0\.1\.0\] - \d{4}-\d{2}-\d{2}\n([\s\S]*?)(?=^## |$(?![\s\S]))/m.exec(
    readFileSync(join(root, "CHANGELOG.md"), "utf8"),
  ) ?? [""];
  assert.notEqual(section, "");
  assert.ok(section.trimEnd().split("\n").length <= 60);
  // Nothing was fixed before there was a version.
  assert.doesNotMatch(section, /^### (?:Added|Changed|Fixed|Security)$/m);
});

for (const name of ["package-lock.json", "site/package-lock.json"]) {
  test(`${name} lists the packages of every platform`, () => {
    const { packages } = JSON.parse(readFileSync(join(root, name), "utf8")) as {
      packages: Record<string, { readonly optionalDependencies?: Record<string, string> }>;
    };
    const missing = Object.entries(packages).flatMap(([path, { optionalDependencies = {} }]) =>
      Object.keys(optionalDependencies).filter(
        (dependency) =>
          !(`${path}/node_modules/${dependency}` in packages) && !(`node_modules/${dependency}` in packages),
      ),
    );
    assert.deepEqual(missing, [], "npm ci fails without them");
  });
}
