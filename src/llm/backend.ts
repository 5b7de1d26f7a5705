/**
 * Defines the `ai` backend. Its code is loaded for the first configuration that has one.
 */
import { createRequire } from "node:module";
import { onDemand } from "../base/on-demand.ts";
import { defineBackend } from "../core/backend.ts";
import { innerPolicies } from "./models/model-table.ts";
import { aiSchema, aiSchemaWith } from "./models/schema.ts";

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
