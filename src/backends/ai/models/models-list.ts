/**
 * `GET /v1/models` where the configuration lists the models: the public names, in OpenAI's shape.
 */
import { jsonReply, type Reply } from "../../../core/reply.ts";
import type { ModelsPath } from "../../../llm/dialects/dialect.ts";
import { errorBody } from "../../../llm/dialects/error-shape.ts";
import type { ModelTable } from "./model-table.ts";

export function modelsReply(table: ModelTable, path: ModelsPath): Reply {
  const { name } = path;
  if (name === undefined) return jsonReply(200, { object: "list", data: table.names.map(modelObject) });
  if (table.candidates(name) !== undefined) return jsonReply(200, modelObject(name));
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
