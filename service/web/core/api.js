// The service's JSON API. Addresses are relative, so that the page also works below a path of
// another server.

/**
 * @typedef {import("openapi").paths} Paths
 * @typedef {import("openapi").components["schemas"]} Schemas
 * @typedef {string | number | boolean | null | undefined} Value
 * @typedef {{ [name: string]: Value | Value[] }} Values of parameters; undefined leaves one out
 */
/**
 * What a route of the service returns.
 * @template {string} P its path
 * @template {"get" | "post" | "delete"} M
 * @typedef {Paths[keyof Paths & `/${P}`] extends { [m in M]: infer Operation }
 *   ? Operation extends { responses: { 200: { content: { "application/json": infer Answer } } } }
 *   ? Answer : never : never} Answer
 */
/**
 * What a route takes.
 * @template {string} P its path
 * @typedef {Paths[keyof Paths & `/${P}`] extends
 *   { post: { requestBody: { content: { "application/json": infer Body } } } }
 *   ? Body : unknown} Body
 */

export class ApiError extends Error {
  /** @param {string} message @param {number} status */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

let lost = false; // the server could not be reached
const AGAIN = 3; // times that a busy server is asked once more

/**
 * The answer of the server; while it is too busy to begin, it is asked again when it says.
 * @param {string} path
 * @param {RequestInit} [options]
 * @param {number} [left]
 * @returns {Promise<Response>}
 */
export async function patiently(path, options, left = AGAIN) {
  const response = await fetch(path, options);
  if (response.status !== 429 || !left || options?.signal?.aborted) return response;
  const seconds = Number(response.headers.get("Retry-After")) || 1;
  await new Promise((after) => setTimeout(after, 1000 * Math.min(5, seconds)));
  return patiently(path, options, left - 1);
}

/** @param {string} path @param {RequestInit} [options] @returns {Promise<any>} */
export async function request(path, options = {}) {
  let response;
  try {
    const headers = { Accept: "application/json", ...options.headers };
    response = await patiently(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    lost = true;
    throw new ApiError("Cannot reach the server. Check that visterm serve is running.", 0);
  }
  if (lost) dispatchEvent(new Event("reachable"));
  lost = false;
  const body = await response.json().catch((error) => {
    if (error.name === "AbortError") throw error;
    return null; // cut off, or of a server in between
  });
  if (!response.ok || body === null)
    throw new ApiError(
      body?.error ?? `Cannot read the server's response (status ${response.status}).`,
      response.status,
    );
  return body;
}

/**
 * @template {string} P
 * @param {P} path
 * @param {Values} [values]
 * @param {RequestInit} [options]
 * @returns {Promise<Answer<P, "get">>}
 */
export function get(path, values = {}, options = {}) {
  const asked = new URLSearchParams(
    Object.entries(values)
      .filter(([, value]) => value !== undefined)
      .flatMap(([name, value]) => [value].flat().map((one) => [name, String(one)])),
  ).toString();
  return request(asked ? `${path}?${asked}` : path, options);
}

/**
 * @template {string} P
 * @param {P} path
 * @param {Body<P>} body
 * @returns {Promise<Answer<P, "post">>}
 */
export const post = (path, body) =>
  request(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });

/** @template {string} P @param {P} path @returns {Promise<Answer<P, "delete">>} */
export const remove = (path) => request(path, { method: "DELETE" });

/**
 * One query by id, upload or label: { id | upload | query_label, learner, label, k, offset }.
 * @param {Values} values
 * @param {RequestInit} [options]
 */
export async function search(values, options) {
  const [answer] = await get("search", values, options);
  return answer;
}

/**
 * One query by a picture from outside.
 * @param {File} file
 * @param {Values} values
 * @param {RequestInit} [options]
 * @returns {Promise<Schemas["SearchResponse"]>}
 */
export async function upload(file, values, options) {
  const form = new FormData();
  form.append("file", file, file.name || "pasted.png");
  for (const [name, value] of Object.entries(values))
    for (const one of [value].flat()) if (one !== undefined) form.append(name, String(one));
  const [answer] = await request("search", { method: "POST", body: form, ...options });
  return answer;
}

/**
 * Labels for an image of the collection, best first.
 * @param {number} id
 * @param {number} k
 * @returns {Promise<Schemas["AnnotationResponse"]>}
 */
export function annotate(id, k) {
  const form = new FormData();
  form.append("id", String(id));
  form.append("k", String(k));
  return request("annotate", { method: "POST", body: form });
}
