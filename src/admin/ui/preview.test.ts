import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "../../base/clock.ts";
import { changesBetween } from "../../config/dump-changes.ts";
import { createPreview } from "./preview.ts";

const preview = createPreview({ clock: systemClock, environment: { PORT: "8080" } });
const base = `gateways: { default: { port: 3000 } }
routes:
  - name: a
    policies: { directResponse: { status: 200, body: one } }
  - name: b
    matches: [{ path: { exact: /b } }]
    policies: { directResponse: { status: 200, body: two } }
`;

function changes(edited: string): string[] {
  const before = preview([{ file: "c.yaml", text: base }]).dump;
  const after = preview([{ file: "c.yaml", text: edited }]).dump;
  assert.ok(before && after);
  return changesBetween(before, after).map(({ what, name, change, parts }) => [what, name, change, ...parts].join(" "));
}

const cases = [
  { name: "nothing", edited: `# only a comment\n${base}`, expected: [] },
  {
    name: "a policy",
    edited: base.replace("body: one", "body: 1st"),
    expected: ["route a changed policies.directResponse"],
  },
  { name: "a match", edited: base.replace("exact: /b", "exact: /c"), expected: ["route b changed matches"] },
  { name: "a port", edited: base.replace("3000", "${PORT}"), expected: ["listener default changed port"] },
  {
    name: "a new route and one less",
    edited: base.replace("name: b", "name: c"),
    expected: ["route c added", "route b removed"],
  },
  {
    name: "the process section",
    edited: `config: { adminAddr: "off" }\n${base}`,
    expected: ["config config changed adminAddr needs a restart"],
  },
];
for (const { name, edited, expected } of cases)
  test(`an edit that changes ${name} is reported as such`, () => assert.deepEqual(changes(edited), expected));

test("an error is reported with its position, and nothing is compared", () => {
  const { problems, dump } = preview([{ file: "c.yaml", text: base.replace("name: a", "nam: a") }]);
  assert.match(problems[0] ?? "", /^c\.yaml:3:5: routes\[0\]\.nam: unknown field/);
  assert.equal(dump, undefined);
});
