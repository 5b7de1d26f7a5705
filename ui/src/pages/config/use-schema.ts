/**
 * Loads the JSON schema of the configuration.
 */
import { useEffect, useState } from "preact/hooks";
import { getJson } from "../../data/api.ts";
import type { JsonSchema } from "./schema-doc.ts";

export function useSchema(): JsonSchema | undefined {
  const [schema, setSchema] = useState<JsonSchema | undefined>(undefined);
  useEffect(() => {
    getJson<JsonSchema>("schema").then(setSchema, () => undefined);
  }, []);
  return schema;
}
