// The viewer over a gallery: which photo it shows, and what its buttons do (viewer.js draws it).

import { queryOf, wordsOf } from "../core/address.js";
import { $ } from "../core/dom.js";
import { remember, remembered } from "../core/remember.js";
import { toast } from "../core/says.js";
import { focusCard } from "./grid.js";
import { ask, change } from "../core/history.js";
import { mark } from "../teach/learning.js";
import { hasGallery, photosGallery } from "./photos.js";
import { copyLink } from "../search/query.js";
import { queryAddress } from "../search/queryimage.js";
import { lists, marks, modelName, queryName, state } from "../core/state.js";
import { closeViewer, drawViewer, toggleDetails, zoomBy } from "./viewer.js";

/** @import { Photo } from "./details.js" */

export function openDialog() {
  const { request, ranking, other, before } = state;
  const query = request.view ? null : queryOf(request);
  const all = query ? lists() : [state.listed];
  const second =
    all[1]?.some((image) => image.id === request.open) &&
    !all[0].some((image) => image.id === request.open);
  const images = all[second ? 1 : 0];
  const image = images.find(
    (one) => one.id === request.open || one.copies?.some((copy) => copy.id === request.open),
  );
  if (!image) {
    toast("The linked photo is not among those shown.");
    return change({ open: undefined, explain: undefined }, { replace: true });
  }
  const by = second && other ? other : ranking;
  /** @param {Photo | undefined} next */
  const show = (next) => next && change({ open: next.id }, { replace: true });
  /** @param {number} n */
  const step = (n) => show(images[images.indexOf(image) + n]);
  return drawViewer({
    image,
    images,
    best: (query && by.results[0]?.score) || 0,
    mark: query ? marks.of.get(image.id) : 0,
    markable: Boolean(query && ranking.key),
    explain: Boolean(query && request.explain),
    beside: Boolean(query && !wordsOf(query) && remembered("beside", false)),
    learner: !query || by === before ? null : by.learner,
    learned_weight: state.request.learned_weight,
    model: query && ("name" in by ? by.name : modelName(by.learner)),
    query: query && {
      values: query,
      name: queryName(),
      address: wordsOf(query) ? null : queryAddress(query, 1024),
    },
    act: {
      close: closeDialog,
      left: () => step(-1),
      right: () => step(1),
      show: (id) => show(images.find((one) => one.id === id)),
      pivot: () => ask({ id: image.id }),
      relevant: () => mark(image, 1),
      not: () => mark(image, -1),
      explain: toggleExplanation,
      beside: toggleBeside,
      details: toggleDetails,
      in: () => zoomBy(1.5),
      out: () => zoomBy(1 / 1.5),
      copy: copyLink,
    },
  });
}

export const toggleExplanation = () =>
  change({ explain: state.request.explain ? undefined : 1 }, { replace: true });

// The query beside the result, or the result alone. An explanation has both already.
export function toggleBeside() {
  remember("beside", !remembered("beside", false));
  return change({ explain: undefined }, { replace: true });
}

function closeDialog() {
  if (!leaveDialog()) return; // it was closed already
  if (history.state?.overlay) history.back();
  else change({ open: undefined, explain: undefined }, { replace: true });
}

// Close the dialog and give the focus back to the photo. False: it was closed already.
export function leaveDialog() {
  const id = closeViewer();
  const photos = hasGallery(state.request) && photosGallery();
  if (id === null) return false;
  if (photos) photos.focus(photos.indexOf(id));
  else if (queryOf(state.request) && !focusCard(id)) $(`#compare td[data-id="${id}"] a`)?.focus();
  return true;
}
