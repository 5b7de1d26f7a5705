/**
 * Executes a Dockerfile without a container engine: each stage is a folder, COPY copies files, and RUN runs commands
 * with the folder as a path prefix. Base images are not available, so their content is not checked.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";

export interface Stage {
  readonly name: string;
  readonly base: string;
  readonly steps: readonly { readonly instruction: string; readonly rest: string }[];
}

export function parseDockerfile(text: string): Stage[] {
  const args = new Map<string, string>();
  const stages: { name: string; base: string; steps: { instruction: string; rest: string }[] }[] = [];
  for (const line of text.replaceAll(/\\\n\s*/g, "").split("\n")) {
    if (line.trim() === "" || line.startsWith("#")) continue;
    const [, instruction = "", rest = ""] = /^([A-Z]+) +(.+)$/.exec(line) ?? [];
    assert.notEqual(instruction, "", `cannot read: ${line}`);
    const stage = stages.at(-1);
    if (instruction === "ARG") {
      const [name = "", value = ""] = rest.split("=");
      args.set(name, value);
    } else if (instruction === "FROM") {
      const [, base = "", name = ""] = /^(\S+) AS (\S+)$/.exec(rest) ?? [];
      stages.push({ name, base: base.replaceAll(/\$\{(\w+)\}/g, (_, arg: string) => args.get(arg) ?? ""), steps: [] });
    } else stage?.steps.push({ instruction, rest });
  }
  return stages;
}

/** The last of an instruction's arguments in a stage, as a list: only the exec form needs no shell. */
export function execForm(stage: Stage, instruction: string): string[] {
  const rest = stage.steps.findLast((step) => step.instruction === instruction)?.rest ?? "";
  return JSON.parse(rest.slice(rest.indexOf("["))) as string[];
}

/** Carries out COPY and RUN of a stage and of those it copies from; returns the stage's folder. */
export function buildStage(
  stages: readonly Stage[],
  name: string,
  { context, out, env }: { readonly context: string; readonly out: string; readonly env: Record<string, string> },
): string {
  const stage = stages.find((one) => one.name === name);
  assert.ok(stage, `there is no stage ${name}`);
  const folder = join(out, name);
  mkdirSync(join(folder, "tmp"), { recursive: true });
  for (const { instruction, rest } of stage.steps) {
    if (instruction === "COPY") {
      const from = /^--from=(\S+) /.exec(rest)?.[1];
      const [source = "", target = ""] = rest.replace(/^--from=\S+ /, "").split(" ");
      if (from === undefined) {
        const [found = "", ...others] = readdirSync(context).filter((one) =>
          new RegExp(`^${source.replaceAll("*", ".*")}$`).test(one),
        );
        assert.deepEqual([others, found === ""], [[], false], `${source} is one file of the context`);
        cpSync(join(context, found), join(folder, target));
        continue;
      }
      // A stage without steps is an image of somebody else's.
      if (stages.find((one) => one.name === from)?.steps.length === 0) continue;
      const origin = buildStage(stages, from, { context, out, env });
      mkdirSync(dirname(join(folder, target)), { recursive: true });
      cpSync(join(origin, source), join(folder, target), { recursive: true, verbatimSymlinks: true });
    } else if (instruction === "RUN") {
      const [command = "", ...args] = rest.split(" ");
      const inside = args.map((arg) => (arg.startsWith("/") ? join(folder, arg) : arg));
      const ran = spawnSync(command, inside, { encoding: "utf8", cwd: folder, env });
      assert.equal(ran.status, 0, `${rest}: ${ran.stderr}`);
    }
  }
  return folder;
}
