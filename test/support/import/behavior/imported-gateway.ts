/**
 * Calls the imported configuration of a LiteLLM file in this process, with the models only.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { peerInput } from "../../../../src/base/peer-inputs.ts";
import { readYaml } from "../../../../src/base/read-yaml.ts";
import { yamlText } from "../../../../src/base/yaml-text.ts";
import { asObject } from "../../../../src/config/import/conversion.ts";
import { startGateway } from "../../gateway.ts";
import { type Call, type Observed, observe, variablesIn } from "./litellm-calls.ts";
import type { Providers } from "./providers.ts";
import { redirectConnections } from "./redirect.ts";

const FILE = peerInput("file/imported-configuration");

export function goldenText(name: string): string {
  return readFileSync(join(process.cwd(), "test", "import", "litellm", `${name}.golden.yaml`), "utf8");
}

/** A call with failures gets a gateway of its own, because failures eject models. */
export async function observeImported(
  name: string,
  calls: readonly Call[],
  providers: Providers,
): Promise<readonly Observed[]> {
  const golden = goldenText(name);
  const llm = asObject(asObject(readYaml(FILE, golden)).llm);
  const yaml = yamlText({ llm: { ...llm, port: 0 } });
  const environment = {
    ...variablesIn(golden),
    AWS_ACCESS_KEY_ID: "AKIAENVIRONMENT",
    AWS_SECRET_ACCESS_KEY: "environment",
  };
  const observed: Observed[] = [];
  const endRedirection = redirectConnections(providers.port);
  let gateway = await startGateway(yaml, { environment });
  try {
    for (const call of calls) {
      if (call.failing !== undefined) {
        await gateway.close();
        gateway = await startGateway(yaml, { environment });
      }
      observed.push(await observe(call, gateway.url(), providers));
    }
  } finally {
    await gateway.close();
    endRedirection();
  }
  return observed;
}
