// The pages of the search page, each in a module of its own that registers itself (views.js).

import "../teach/concept.js";
import "../teach/figures.js";
import "../teach/alike.js";
import "../gallery/home.js";
import "../map/map.js";
import "../gallery/photos.js";
import "../teach/queue.js";
