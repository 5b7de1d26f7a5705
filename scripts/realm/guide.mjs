/**
 * Runs the commands of docs/keycloak.md exactly as written, so that the page stays correct.
 */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "../steps.mjs";

/** Runs the `sh` block below a heading of the guide, with the variables that earlier blocks have set. */
export function guideRunner({ home, scratch, environment }) {
  const text = readFileSync(join(root, "docs/keycloak.md"), "utf8");
  const state = join(scratch, "variables");
  const command = (script) => {
    const whole = `set -e; [ -e "$STATE" ] && . "$STATE"\n${script}\nset | grep -E '^(SCOPE|POLICY|ROLES?)=' > "$STATE" || true`;
    const result = spawnSync("bash", ["-c", whole], {
      env: {
        ...process.env,
        ...environment,
        STATE: state,
        HOME: scratch,
        PATH: `${join(home, "bin")}:${process.env.PATH}`,
      },
      encoding: "utf8",
    });
    if (result.status !== 0)
      throw new Error(`a step of the guide failed:\n${script}\n${result.stdout}${result.stderr}`);
  };
  const runner = (heading) => {
    const section = text.split(`## ${heading}\n`)[1]?.split("\n## ")[0] ?? "";
    const script = /```sh\n([\s\S]*?)```/.exec(section)?.[1];
    if (script === undefined) throw new Error(`no commands below "${heading}" in the guide`);
    console.log(`── ${heading}`);
    command(script);
  };
  return Object.assign(runner, { command });
}
