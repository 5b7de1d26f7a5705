/**
 * Defines the `ai` backend. Its code is loaded for the first configuration that has one.
 */
import { createRequire } from "node:module";
import { onDemand } from "../base/on-demand.ts";
import { defineBackend, type InnerPolicies } from "../core/backend.ts";
import { type AiConfig, aiSchema, aiSchemaWith } from "./models/schema.ts";

const require = createRequire(import.meta.url);
const implementation = onDemand<typeof import("./ai-backend.ts")>(() => require("./ai-backend.js"));

export const ai = defineBackend({
  key: "ai",
  doc: "LLM providers: one, several in groups, or a list of models.",
  schema: aiSchema,
  schemaWith: aiSchemaWith,
  innerPolicies,
  section: { name: "llm", defaultPort: 4000 },
  protection: () => "none",
  compile: (config, env) => implementation().compileAi(config, env),
});

function innerPolicies({ models = [], virtualModels = [] }: AiConfig): readonly InnerPolicies[] {
  const of = (
    kind: string,
    field: string,
    list: readonly { readonly name: string; readonly policies?: InnerPolicies["policies"] | undefined }[],
  ): InnerPolicies[] =>
    list.flatMap(({ name, policies }, i) =>
      policies === undefined ? [] : [{ name: `${kind} ${name}`, path: [field, i], policies }],
    );
  return [...of("model", "models", models), ...of("virtual model", "virtualModels", virtualModels)];
}
