/**
 * Applies what a Gateway is deployed as (server-side apply), when it changed or when it is gone from the cluster.
 */
import { createHash } from "node:crypto";
import { type KubernetesObject, objectKey } from "../../config/cluster/kubernetes-object.ts";
import type { Logger } from "../../observe/log/logger.ts";
import { type ApiClient, ApiError } from "../client/api-client.ts";
import { MANAGED_BY } from "./data-plane-manifests.ts";

const PATHS: Readonly<Record<string, string>> = {
  ServiceAccount: "/api/v1/namespaces/NS/serviceaccounts",
  Service: "/api/v1/namespaces/NS/services",
  Deployment: "/apis/apps/v1/namespaces/NS/deployments",
  PodDisruptionBudget: "/apis/policy/v1/namespaces/NS/poddisruptionbudgets",
};

export interface Deployer {
  /** True if something must be tried again. `isThere`: whether the cluster has such an object. */
  apply(
    manifests: readonly KubernetesObject[],
    isThere: (kind: string, key: string) => boolean | undefined,
  ): Promise<boolean>;
}

export function createDeployer(client: ApiClient, logger: Logger): Deployer {
  const applied = new Map<string, string>();

  async function applyOne(manifest: KubernetesObject): Promise<boolean> {
    const { name, namespace = "" } = manifest.metadata;
    const collection = PATHS[manifest.kind]?.replace("NS", encodeURIComponent(namespace));
    const path = `${collection}/${encodeURIComponent(name)}?fieldManager=${MANAGED_BY}&force=true`;
    try {
      await client.request({ method: "PATCH", path, type: "application/apply-patch+yaml", body: manifest });
      return true;
    } catch (error) {
      // A namespace that is about to go takes nothing new.
      const isEnding = error instanceof ApiError && (error.status === 404 || /being terminated/.test(error.message));
      if (!isEnding)
        logger.warn("a data plane could not be deployed", {
          object: `${manifest.kind} ${objectKey(manifest)}`,
          reason: (error as Error).message,
        });
      return false;
    }
  }

  return {
    async apply(manifests, isThere) {
      let isLeft = false;
      for (const manifest of manifests) {
        const key = `${manifest.kind} ${objectKey(manifest)}`;
        const hash = createHash("sha256").update(JSON.stringify(manifest)).digest("base64");
        if (applied.get(key) === hash && isThere(manifest.kind, objectKey(manifest)) !== false) continue;
        if (await applyOne(manifest)) applied.set(key, hash);
        else isLeft = true;
      }
      return isLeft;
    },
  };
}
