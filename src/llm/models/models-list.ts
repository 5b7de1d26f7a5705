/**
 * `GET /v1/models` where the configuration lists the models: the public names, in OpenAI's shape.
 */

import type { ModelAccess } from "../../core/facts.ts";
import { jsonReply, type Reply } from "../../core/reply.ts";
import type { ModelsPath } from "../request/dialect.ts";
import { errorBody } from "../request/llm-errors.ts";
import type { ModelTable } from "./model-table.ts";

/** `access`: what the client's key may use, if that is not everything. `rules`: what the models' own policies say. */
export function modelsReply(
  table: ModelTable,
  path: ModelsPath,
  access: ModelAccess | undefined,
  rules: (model: string) => boolean,
): Reply {
  const { name } = path;
  const mayUse = (model: string): boolean => (access === undefined || access.allows(model)) && rules(model);
  // Where the provider knows the names, a key with a list says which.
  const names = table.isClosed ? table.names.filter(mayUse) : (access?.names ?? []);
  if (name === undefined) return jsonReply(200, { object: "list", data: names.map(modelObject) });
  if (mayUse(name) && table.possible(name).length > 0) return jsonReply(200, modelObject(name));
  return jsonReply(
    404,
    errorBody("chat", {
      status: 404,
      message: `the model ${JSON.stringify(name)} does not exist`,
      code: "model_not_found",
      param: "model",
    }),
  );
}

/** There is no time at which a configured name was made; clients only need the member to be there. */
function modelObject(id: string) {
  return { id, object: "model", created: 0, owned_by: "gateway" };
}
