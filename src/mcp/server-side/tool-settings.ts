/**
 * The configuration of a target's tools: which of them clients see, under which names and descriptions, what fills
 * their arguments, and how long they may run. Names on the left are always the server's own.
 */
import { z } from "zod";
import { celSource, duration, exactlyOneOf } from "../../core/schema.ts";

/** Names of tools as clients see them (2025-11-25, tools). */
const TOOL_NAME = /^[A-Za-z0-9_./-]{1,128}$/;

const json: z.ZodType<unknown> = z.unknown();

const argument = z
  .strictObject({
    default: json.optional().describe("Sent when the client leaves the argument out; clients see it in the schema."),
    value: json.optional().describe("Always sent. Clients neither see nor set the argument."),
    expression: celSource()
      .optional()
      .describe(
        "CEL for the value that is always sent, for example `jwt.email`. Clients neither see nor set the argument; a call without a value is denied.",
      ),
    hidden: z.boolean().optional().describe("`true`: clients neither see nor set the argument."),
    description: z.string().optional().describe("Replaces the server's description of the argument."),
  })
  .superRefine((value, context) => {
    const sources = (["default", "value", "expression"] as const).filter((key) => value[key] !== undefined);
    if (sources.length > 1)
      context.addIssue({ code: "custom", message: `only one of ${sources.join(" and ")} may be given` });
    if (value.hidden === false && (value.value !== undefined || value.expression !== undefined))
      context.addIssue({ code: "custom", path: ["hidden"], message: "an argument with a fixed value is hidden" });
  });

const override = z.strictObject({
  name: z
    .string()
    .regex(TOOL_NAME, "expected letters, digits, `_`, `-`, `.` and `/`, 128 characters at most")
    .optional()
    .describe("The name that clients see. Rules, limits and logs use it too."),
  title: z.string().optional().describe("Replaces the server's title."),
  description: z.string().optional().describe("Replaces the server's description."),
  arguments: z.record(z.string().min(1), argument).optional().describe("Arguments by the server's names."),
  timeout: duration().optional().describe("How long a call may run in all."),
});

const guardRule = exactlyOneOf(
  z.strictObject({
    builtin: z.enum(["ssn", "creditCard", "phoneNumber", "email", "caSin"]).optional().describe("A built-in pattern."),
    pattern: z.string().min(1).max(4096).optional().describe("A regular expression in RE2 syntax."),
  }),
  ["builtin", "pattern"],
);

const resultGuard = z.strictObject({
  mode: z
    .enum(["enforce", "shadow"])
    .optional()
    .describe(
      "`shadow`: what the guard would mask or reject is recorded (`gwctl shadow report`), but nothing is changed or rejected. Default: enforce.",
    ),
  regex: z
    .strictObject({
      action: z
        .enum(["mask", "reject"])
        .default("mask")
        .describe("Mask matches, or reject the whole result. Default: mask."),
      rules: z.array(guardRule).min(1).describe("The patterns."),
    })
    .describe("Regular expressions, matched in linear time."),
  rejection: z
    .strictObject({ body: z.string().min(1).describe("What clients are told instead of the result.") })
    .optional()
    .describe("The text of a rejection."),
});

export type ResultGuardConfig = z.output<typeof resultGuard>;

const patterns = z.array(z.string().min(1).max(128));

export const toolsSchema = z
  .strictObject({
    allow: patterns.optional().describe("The only tools that clients see and call; `*` stands for any characters."),
    deny: patterns.optional().describe("Tools that clients neither see nor call, also if `allow` names them."),
    override: z.record(z.string().min(1), override).optional().describe("Changes to single tools, by their names."),
    resultGuard: z
      .array(resultGuard)
      .min(1)
      .optional()
      .describe("Mask or reject texts that the server sends, as `promptGuard` does in LLM responses."),
    timeout: duration().optional().describe("How long a call of any tool may run in all. Default: `requestTimeout`."),
  })
  .superRefine(({ override: overrides = {} }, context) => {
    const taken = new Map<string, string>();
    for (const [tool, { name }] of Object.entries(overrides)) {
      const shown = name ?? tool;
      const other = taken.get(shown);
      if (other !== undefined)
        context.addIssue({
          code: "custom",
          path: ["override", tool, "name"],
          message: `"${shown}" is the name of "${other}" too`,
        });
      taken.set(shown, tool);
    }
  });

export type ToolsConfig = z.output<typeof toolsSchema>;
export type ToolOverride = z.output<typeof override>;
export type ArgumentOverride = z.output<typeof argument>;
